package cli

import (
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/api/volumepopulator/v1beta1"
)

// Cluster is which cluster, as whom, and which namespace a call is about, by
// kubectl's rules: the flags, then the environment, then ~/.kube/config.
type Cluster struct {
	kubeconfig string
	overrides  clientcmd.ConfigOverrides
}

// AddFlags adds kubectl's flags of these names to a command and its verbs.
func (c *Cluster) AddFlags(cmd *cobra.Command) {
	f := cmd.PersistentFlags()
	f.StringVar(&c.kubeconfig, "kubeconfig", "", "path of the kubeconfig file")
	f.StringVar(&c.overrides.CurrentContext, "context", "", "context of the kubeconfig")
	f.StringVarP(&c.overrides.Context.Namespace, "namespace", "n", "", "namespace of the claim")
	f.StringVar(&c.overrides.AuthInfo.Impersonate, "as", "", "user to act as")
	f.StringVar(&c.overrides.Timeout, "request-timeout", "30s", "how long one request may take; 0 is no limit")
}

// Connect returns a client and the namespace of the call.
func (c *Cluster) Connect() (client.Client, string, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = c.kubeconfig
	config := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &c.overrides)
	namespace, _, err := config.Namespace()
	if err != nil {
		return nil, "", fmt.Errorf("read kubeconfig: %w", err)
	}
	cfg, err := config.ClientConfig()
	if err != nil {
		return nil, "", fmt.Errorf("read kubeconfig: %w", err)
	}
	cfg.UserAgent = "kubectl-sluice"
	to, err := client.New(cfg, client.Options{Scheme: Scheme()})
	if err != nil {
		return nil, "", fmt.Errorf("reach cluster %q: %w", cfg.Host, err)
	}
	return to, namespace, nil
}

// Connector returns the client and the namespace that a verb works with.
// Cluster.Connect is one.
type Connector func() (client.Client, string, error)

// Claim reads the name of a claim from arguments and reaches for the cluster
// that it is in.
func (c Connector) Claim(args []string) (client.Client, types.NamespacedName, error) {
	name, err := ClaimName(args)
	if err != nil {
		return nil, types.NamespacedName{}, err
	}
	to, namespace, err := c()
	if err != nil {
		return nil, types.NamespacedName{}, err
	}
	return to, types.NamespacedName{Namespace: namespace, Name: name}, nil
}

// Scheme knows all kinds that verbs read.
func Scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(clientscheme.AddToScheme(s))
	utilruntime.Must(v1alpha1.AddToScheme(s))
	utilruntime.Must(v1beta1.AddToScheme(s))
	return s
}
