package observe

import (
	"context"
	"fmt"
	"sync"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Progress returns a function that tells how far the cache of an object's kind
// has come, for NewMemory; empty while that is not known.
func Progress(ctx context.Context, c cache.Cache) func(client.Object) string {
	var stores sync.Map // type of object → toolscache.Store
	return func(o client.Object) string {
		kind := fmt.Sprintf("%T", o)
		store, ok := stores.Load(kind)
		if !ok {
			informer, err := c.GetInformer(ctx, o, cache.BlockUntilSynced(false))
			if err != nil {
				return ""
			}
			shared, ok := informer.(toolscache.SharedIndexInformer)
			if !ok {
				return ""
			}
			store, _ = stores.LoadOrStore(kind, shared.GetStore())
		}
		known, _ := store.(toolscache.Store) // only stores are stored
		return known.LastStoreSyncResourceVersion()
	}
}
