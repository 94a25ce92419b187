package manager

import (
	"context"
	"fmt"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/sluice-dev/sluice/internal/event"
)

// lastEvents is how long a process that ends stays for the events that have yet
// to be sent. Together with the grace period of reconciles it is less than what
// a Pod is given to end.
const lastEvents = 5 * time.Second

// process is a manager and what outlives it: the events that its controllers
// told, which a manager's own recorder gives up when it stops.
type process struct {
	ctrl.Manager
	events *event.Sender
}

// Start runs the manager until ctx ends, and returns when its events are sent.
func (p *process) Start(ctx context.Context) error {
	p.events.Start(ctx)
	defer p.events.Stop(lastEvents)
	return p.Manager.Start(ctx)
}

// newSender builds what sends the events of all controllers.
func newSender(mgr ctrl.Manager) (*event.Sender, error) {
	clients, err := kubernetes.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("build client for events: %w", err)
	}
	return event.NewSender(clients.EventsV1(), mgr.GetScheme(), clock.RealClock{}, mgr.GetLogger().WithName("event")), nil
}
