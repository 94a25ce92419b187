package plugin

import (
	"context"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/status"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/api/worker"
	"github.com/sluice-dev/sluice/internal/plan/populate"
	populatorv1 "github.com/sluice-dev/sluice/proto/populator/v1"
)

// infoTimeout bounds the call that asks a plugin who it is: it has nothing to
// look up.
const infoTimeout = 3 * time.Second

// callInfo is the name of that call in metrics.
const callInfo populate.Call = "GetInfo"

// Bounds of what a plugin says about itself.
const (
	maxName    = 253
	maxVersion = 64
)

// An Asker asks plugins who they are.
type Asker struct {
	Clients Clients
	Now     func() time.Time
}

// Ask asks the plugin of a Populator. The error is one sentence for whoever runs
// the plugin; it is nil only for a plugin that serves the Populator's kind.
func (a Asker) Ask(ctx context.Context, p *v1alpha1.Populator) (*v1alpha1.PluginInfo, error) {
	client, err := a.Clients.To(p)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, infoTimeout)
	defer cancel()
	begun := a.Now()
	r, err := client.GetInfo(ctx, &populatorv1.GetInfoRequest{})
	observeCall(p.Name, callInfo, err, a.Now().Sub(begun))
	if err != nil {
		s := status.Convert(err)
		return nil, fmt.Errorf("no answer from the plugin at %s: %s: %s", Where(p.Spec.Plugin), s.Code(), worker.Clean(s.Message()))
	}
	return judge(r, p)
}

// judge reads what a plugin says about itself, and says what keeps it from
// serving the Populator.
func judge(r *populatorv1.GetInfoResponse, p *v1alpha1.Populator) (*v1alpha1.PluginInfo, error) {
	info := &v1alpha1.PluginInfo{Name: cut(r.GetName(), maxName), Version: cut(r.GetVersion(), maxVersion)}
	for _, c := range r.GetCapabilities() {
		if name, known := capabilities[c]; known && !slices.Contains(info.Capabilities, name) {
			info.Capabilities = append(info.Capabilities, name)
		}
	}
	slices.Sort(info.Capabilities)
	kind := p.Spec.SourceKind
	if !slices.ContainsFunc(r.GetSourceKinds(), func(k *populatorv1.Kind) bool { return k.GetGroup() == kind.Group && k.GetKind() == kind.Kind }) {
		return nil, fmt.Errorf("the plugin %q at %s does not serve %s.%s", info.Name, Where(p.Spec.Plugin), kind.Kind, kind.Group)
	}
	if slices.Contains(info.Capabilities, v1alpha1.PluginFills) == slices.Contains(info.Capabilities, v1alpha1.PluginComputesWorker) {
		return nil, fmt.Errorf("the plugin %q at %s must be able to do exactly one of FILL and COMPUTE_WORKER", info.Name, Where(p.Spec.Plugin))
	}
	return info, nil
}

var capabilities = map[populatorv1.Capability]v1alpha1.PluginCapability{
	populatorv1.Capability_CAPABILITY_COMPUTE_WORKER:  v1alpha1.PluginComputesWorker,
	populatorv1.Capability_CAPABILITY_FILL:            v1alpha1.PluginFills,
	populatorv1.Capability_CAPABILITY_VALIDATE_SOURCE: v1alpha1.PluginValidatesSource,
	populatorv1.Capability_CAPABILITY_MUTATE_PRIME:    v1alpha1.PluginMutatesPrime,
}

func cut(text string, most int) string {
	text = worker.Clean(text)
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most])
	}
	return text
}

// Where says where a plugin listens, for people.
func Where(p *v1alpha1.Plugin) string {
	switch {
	case p == nil:
		return "nowhere"
	case p.Service != nil:
		return fmt.Sprintf("Service %s/%s port %d", p.Service.Namespace, p.Service.Name, p.Service.Port)
	}
	return "socket " + p.Socket
}
