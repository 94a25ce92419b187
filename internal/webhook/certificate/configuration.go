package certificate

import (
	"bytes"
	"context"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	toolscache "k8s.io/client-go/tools/cache"
)

// fieldManager owns what the Keeper writes.
const fieldManager = "sluice-certificate"

// publish writes the bundle into every webhook of our configurations. It
// returns nil only when all of them hold it. A configuration that does not
// exist is none of its concern.
func (k *Keeper) publish(ctx context.Context, bundle []byte) error {
	if err := k.publishValidating(ctx, bundle); err != nil {
		return err
	}
	return k.publishMutating(ctx, bundle)
}

func (k *Keeper) publishValidating(ctx context.Context, bundle []byte) error {
	configurations := k.clients.AdmissionregistrationV1().ValidatingWebhookConfigurations()
	c, err := configurations.Get(ctx, k.Configuration, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("get ValidatingWebhookConfiguration %q: %w", k.Configuration, err)
	}
	changed := false
	for i := range c.Webhooks {
		changed = trust(&c.Webhooks[i].ClientConfig, bundle) || changed
	}
	if !changed {
		return nil
	}
	if _, err := configurations.Update(ctx, c, metav1.UpdateOptions{FieldManager: fieldManager}); err != nil {
		return fmt.Errorf("update ValidatingWebhookConfiguration %q: %w", k.Configuration, err)
	}
	return nil
}

func (k *Keeper) publishMutating(ctx context.Context, bundle []byte) error {
	configurations := k.clients.AdmissionregistrationV1().MutatingWebhookConfigurations()
	c, err := configurations.Get(ctx, k.Configuration, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("get MutatingWebhookConfiguration %q: %w", k.Configuration, err)
	}
	changed := false
	for i := range c.Webhooks {
		changed = trust(&c.Webhooks[i].ClientConfig, bundle) || changed
	}
	if !changed {
		return nil
	}
	if _, err := configurations.Update(ctx, c, metav1.UpdateOptions{FieldManager: fieldManager}); err != nil {
		return fmt.Errorf("update MutatingWebhookConfiguration %q: %w", k.Configuration, err)
	}
	return nil
}

// trust sets the bundle of one webhook and says whether that changed it.
func trust(c *admissionregistrationv1.WebhookClientConfig, bundle []byte) bool {
	if bytes.Equal(c.CABundle, bundle) {
		return false
	}
	c.CABundle = bundle
	return true
}

// watch reports changes of the Secret and the configurations, each by name, so
// that the rights to these objects alone suffice.
func (k *Keeper) watch(ctx context.Context) (<-chan struct{}, error) {
	changed := make(chan struct{}, 1)
	handler := toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { signal(changed) },
		UpdateFunc: func(any, any) { signal(changed) },
		DeleteFunc: func(any) { signal(changed) },
	}
	secrets := informers.NewSharedInformerFactoryWithOptions(k.clients, 0, informers.WithNamespace(k.Namespace), only(SecretName))
	configurations := informers.NewSharedInformerFactoryWithOptions(k.clients, 0, only(k.Configuration))
	for _, informer := range []toolscache.SharedIndexInformer{
		secrets.Core().V1().Secrets().Informer(),
		configurations.Admissionregistration().V1().ValidatingWebhookConfigurations().Informer(),
		configurations.Admissionregistration().V1().MutatingWebhookConfigurations().Informer(),
	} {
		if _, err := informer.AddEventHandler(handler); err != nil {
			return nil, fmt.Errorf("watch for changes of certificates: %w", err)
		}
	}
	secrets.StartWithContext(ctx)
	configurations.StartWithContext(ctx)
	return changed, nil
}

func only(name string) informers.SharedInformerOption {
	return informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
	})
}

func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
