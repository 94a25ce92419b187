package driver

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// identity is the identity service, which every process offers.
type identity struct {
	csi.UnimplementedIdentityServer
	version    string
	controller bool
}

// GetPluginInfo tells the driver's name and version.
func (i *identity) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: Name, VendorVersion: i.version}, nil
}

// Probe says that the driver is ready: it has nothing to warm up.
func (i *identity) Probe(context.Context, *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	return &csi.ProbeResponse{}, nil
}

// GetPluginCapabilities tells what the driver as a whole can do.
func (i *identity) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	services := []csi.PluginCapability_Service_Type{csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS}
	if i.controller {
		services = append(services, csi.PluginCapability_Service_CONTROLLER_SERVICE)
	}
	resp := &csi.GetPluginCapabilitiesResponse{Capabilities: []*csi.PluginCapability{{
		Type: &csi.PluginCapability_VolumeExpansion_{VolumeExpansion: &csi.PluginCapability_VolumeExpansion{
			Type: csi.PluginCapability_VolumeExpansion_ONLINE,
		}},
	}}}
	for _, s := range services {
		resp.Capabilities = append(resp.Capabilities, &csi.PluginCapability{
			Type: &csi.PluginCapability_Service_{Service: &csi.PluginCapability_Service{Type: s}},
		})
	}
	return resp, nil
}
