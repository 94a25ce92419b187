package driver

import (
	"context"
	"errors"
	"fmt"
	"path"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sluice-dev/sluice/cluster/csi/disk"
	"github.com/sluice-dev/sluice/cluster/csi/fault"
	"github.com/sluice-dev/sluice/cluster/csi/state"
	"github.com/sluice-dev/sluice/cluster/csi/topology"
)

// interceptor stands around every call: it logs it, turns errors into gRPC
// statuses, and makes the faults that a test asked for.
type interceptor struct {
	world  *world
	faults fault.Set
	node   *topology.Node
}

// logged makes every call a line of the log, and every error a status.
func (i interceptor) logged(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	start := time.Now()
	resp, err := next(ctx, req)
	err = asStatus(err)
	method := path.Base(info.FullMethod)
	args := []any{"method", method, "took", time.Since(start).Round(time.Millisecond).String()}
	if v, ok := req.(interface{ GetVolumeId() string }); ok {
		args = append(args, "volume", v.GetVolumeId())
	}
	if v, ok := req.(interface{ GetName() string }); ok {
		args = append(args, "name", v.GetName())
	}
	switch {
	case err != nil:
		i.world.log.Warn("call refused", append(args, "code", status.Code(err).String(), "error", status.Convert(err).Message())...)
	case quiet[method]:
		i.world.log.Debug("call answered", args...)
	default:
		i.world.log.Info("call answered", args...)
	}
	return resp, err
}

// quiet are the calls that are made all the time.
var quiet = map[string]bool{
	"Probe": true, "GetPluginInfo": true, "GetPluginCapabilities": true, "ControllerGetCapabilities": true,
	"NodeGetCapabilities": true, "NodeGetVolumeStats": true, "ListVolumes": true, "ListSnapshots": true, "GetCapacity": true,
}

// faulty makes the faults that match the call.
func (i interceptor) faulty(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	call, err := i.call(req, path.Base(info.FullMethod))
	if err != nil {
		return nil, err
	}
	if err := i.strike(ctx, call, fault.Before); err != nil {
		return nil, err
	}
	resp, err := next(ctx, req)
	if err != nil {
		return nil, err
	}
	if err := i.strike(ctx, call, fault.After); err != nil {
		return nil, err
	}
	return resp, nil
}

func (i interceptor) strike(ctx context.Context, call fault.Call, at fault.Point) error {
	f, hit, err := i.faults.Strike(ctx, call, at)
	if err != nil || !hit {
		return err
	}
	i.world.log.Info("fault struck", "fault", f.Name, "method", call.Method)
	if f.Delay > 0 {
		timer := time.NewTimer(time.Duration(f.Delay))
		defer timer.Stop()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
		}
	}
	if f.Code == 0 {
		return nil
	}
	message := f.Message
	if message == "" {
		message = fmt.Sprintf("fault %q asks for it", f.Name)
	}
	return status.Error(codes.Code(f.Code), message)
}

// call describes a request in the words that faults use.
func (i interceptor) call(req any, method string) (fault.Call, error) {
	c := fault.Call{Method: method}
	if i.node != nil {
		c.Node, c.Zone = i.node.ID, i.node.Zone
	}
	if r, ok := req.(interface{ GetNodeId() string }); ok {
		c.Node, c.Zone = r.GetNodeId(), ""
		n, _, err := i.world.node(r.GetNodeId())
		if err != nil {
			return c, err
		}
		c.Zone = n.Zone
	}
	if r, ok := req.(*csi.CreateVolumeRequest); ok {
		c.Volumes = []string{r.GetName(), state.VolumeID(r.GetName())}
		c.Claim = claimOf(r.GetParameters())
		c.Node, c.Zone = "", ""
		if offers := offersOf(r.GetAccessibilityRequirements()); len(offers) > 0 {
			c.Node, c.Zone = offers[0][topology.NodeKey], offers[0][topology.ZoneKey]
		}
	}
	id := ""
	if r, ok := req.(interface{ GetVolumeId() string }); ok {
		id = r.GetVolumeId()
	} else if r, ok := req.(interface{ GetSourceVolumeId() string }); ok {
		id = r.GetSourceVolumeId()
	}
	if id == "" {
		return c, nil
	}
	c.Volumes = []string{id}
	v, err := i.world.volume(id)
	if errors.Is(err, state.ErrNotFound) {
		return c, nil // the call itself says so
	}
	if err != nil {
		return c, err
	}
	c.Volumes, c.Claim = append(c.Volumes, v.Name), v.Claim
	return c, nil
}

// claimOf returns "namespace/name" of the claim that the provisioner names with
// --extra-create-metadata.
func claimOf(parameters map[string]string) string {
	namespace, name := parameters["csi.storage.k8s.io/pvc/namespace"], parameters["csi.storage.k8s.io/pvc/name"]
	if name == "" {
		return ""
	}
	return namespace + "/" + name
}

// asStatus gives an error its gRPC code. Errors that carry one keep it.
func asStatus(err error) error {
	if err == nil {
		return nil
	}
	if s, ok := status.FromError(err); ok {
		return s.Err()
	}
	code := codes.Internal
	switch {
	case errors.Is(err, state.ErrNotFound):
		code = codes.NotFound
	case errors.Is(err, state.ErrBusy), errors.Is(err, disk.ErrWrittenTo):
		code = codes.Aborted
	case errors.Is(err, topology.ErrNoPlace):
		code = codes.ResourceExhausted
	case errors.Is(err, disk.ErrForeignData), errors.Is(err, disk.ErrOnlyUnmounted):
		code = codes.FailedPrecondition
	case errors.Is(err, context.DeadlineExceeded):
		code = codes.DeadlineExceeded
	case errors.Is(err, context.Canceled):
		code = codes.Canceled
	}
	return status.Error(code, err.Error())
}
