// Package uninstall lets go of all claims before Sluice goes from a cluster.
//
// A claim whose temporaries live in another namespace bears a finalizer of ours,
// and so does a prime that a plugin fills; nobody would remove them any more. So
// the managers are stopped first, then their Lease is taken, so that none leads
// that stops late, and then each such claim is let go as kubectl sluice release
// would do it. Run is called by the chart's pre-delete hook, with the manager's
// identity: what may be deleted is fenced by the same admission policies.
package uninstall

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/cli/release"
	"github.com/sluice-dev/sluice/internal/manager"
)

const (
	// pageSize is how many claims are listed at once.
	pageSize = 500
	// atOnce is how many claims are let go at the same time; each waits for its
	// temporaries.
	atOnce = 16
)

// Options are what the chart knows and the process does not.
type Options struct {
	// Namespace is the manager's.
	Namespace string
	// Deployment is that of the managers.
	Deployment string
	// LeaseDuration is the managers'.
	LeaseDuration time.Duration
	// Identity is who holds the Lease meanwhile.
	Identity string
	// Timeout is how long a claim waits for its temporaries to vanish.
	Timeout time.Duration
	// Log is told of every claim that is let go.
	Log logr.Logger
}

// Run stops the managers and lets every claim go that bears a finalizer of ours. It
// returns an error if one does not; it can be called again then. The managers
// stay stopped.
func Run(ctx context.Context, cfg *rest.Config, o Options) error {
	to, err := client.New(cfg, client.Options{Scheme: manager.Scheme()})
	if err != nil {
		return fmt.Errorf("build client: %w", err)
	}
	leases, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("build client of leases: %w", err)
	}
	if err := stop(ctx, to, o); err != nil {
		return err
	}
	return lead(ctx, leases, o, func(ctx context.Context) error { return letGo(ctx, to, o) })
}

// stop scales the managers down to none.
func stop(ctx context.Context, to client.Client, o Options) error {
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Deployment}}
	none := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"replicas":0}}`))
	err := to.SubResource("scale").Patch(ctx, d, none, client.WithSubResourceBody(&autoscalingv1.Scale{}))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("scale deployment %q to none: %w", o.Deployment, err)
	}
	return nil
}

// lead calls work while it holds the managers' Lease, which it keeps: a manager
// that is slow to stop finds it taken until it is gone.
func lead(ctx context.Context, leases kubernetes.Interface, o Options, work func(context.Context) error) error {
	_, err := leases.CoordinationV1().Leases(o.Namespace).Get(ctx, manager.LeaseName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return work(ctx) // without it no manager leads, and we may not make it
	}
	if err != nil {
		return fmt.Errorf("read lease %q: %w", manager.LeaseName, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: o.Namespace, Name: manager.LeaseName},
			Client:     leases.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: o.Identity},
		},
		LeaseDuration: o.LeaseDuration, RenewDeadline: o.LeaseDuration * 2 / 3, RetryPeriod: o.LeaseDuration / 6,
		Name: manager.LeaseName,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) {
				done <- work(ctx)
				cancel()
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return fmt.Errorf("build elector: %w", err)
	}
	elector.Run(ctx)
	select {
	case err := <-done:
		return err
	default:
		return fmt.Errorf("take lease %q: a manager still holds it, or it was taken from us", manager.LeaseName)
	}
}

// letGo lets all claims go, and goes on where one does not. Primes come last:
// most go with their claims.
func letGo(ctx context.Context, to client.Client, o Options) error {
	claims, primes, err := held(ctx, to)
	if err != nil {
		return err
	}
	o.Log.Info("managers stopped", "claims", len(claims), "primes", len(primes))
	return errors.Join(releaseAll(ctx, to, o, claims), releaseAll(ctx, to, o, primes))
}

// releaseAll releases a few claims at a time.
func releaseAll(ctx context.Context, to client.Client, o Options, claims []types.NamespacedName) error {
	var (
		mu     sync.Mutex
		failed []error
		all    sync.WaitGroup
		slots  = make(chan struct{}, atOnce)
	)
	for _, claim := range claims {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			did, err := release.Force(ctx, to, claim, o.Namespace, time.Now(), o.Timeout)
			if err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed = append(failed, err)
				return
			}
			o.Log.Info("claim let go", "claim", claim, "did", did)
		})
	}
	all.Wait()
	return errors.Join(failed...)
}

// held are the claims that bear a finalizer of ours or have a prime that does,
// and these primes.
func held(ctx context.Context, from client.Reader) (claims, primes []types.NamespacedName, err error) {
	page := &metav1.PartialObjectMetadataList{}
	page.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaimList"))
	for {
		if err := from.List(ctx, page, client.Limit(pageSize), client.Continue(page.Continue)); err != nil {
			return nil, nil, fmt.Errorf("list claims: %w", err)
		}
		for i := range page.Items {
			c := &page.Items[i]
			if slices.Contains(c.Finalizers, v1alpha1.FinalizerPopulation) {
				claims = append(claims, client.ObjectKeyFromObject(c))
			}
			if slices.Contains(c.Finalizers, v1alpha1.FinalizerPlugin) {
				primes = append(primes, client.ObjectKeyFromObject(c))
				if claim := claimOf(c); claim.Name != "" {
					claims = append(claims, claim)
				}
			}
		}
		if page.Continue == "" {
			slices.SortFunc(claims, func(a, b types.NamespacedName) int { return strings.Compare(a.String(), b.String()) })
			return slices.Compact(claims), primes, nil
		}
	}
}

// claimOf is the claim that a prime is for: its owner, or in another namespace
// the one that it names.
func claimOf(prime *metav1.PartialObjectMetadata) types.NamespacedName {
	if owner := metav1.GetControllerOf(prime); owner != nil {
		return types.NamespacedName{Namespace: prime.Namespace, Name: owner.Name}
	}
	namespace, name, _ := strings.Cut(prime.Annotations[v1alpha1.AnnotationClaim], "/")
	return types.NamespacedName{Namespace: namespace, Name: name}
}
