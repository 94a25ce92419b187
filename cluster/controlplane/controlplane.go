// Package controlplane describes the programs of a cluster's control plane:
// etcd, kube-apiserver, kube-controller-manager and kube-scheduler.
package controlplane

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"time"

	"github.com/sluice-dev/sluice/cluster/component"
	"github.com/sluice-dev/sluice/cluster/config"
	"github.com/sluice-dev/sluice/cluster/pki"
)

// Names of units that others wait for.
const (
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
	etcd              = "etcd"
)

// Everything but the API server listens on the loopback address of the
// cluster's own network namespace, so fixed ports never clash.
const (
	etcdURL           = "http://127.0.0.1:2379"
	etcdPeerURL       = "http://127.0.0.1:2380"
	etcdMetricsURL    = "http://127.0.0.1:2381"
	controllerMgrPort = 10257
	schedulerPort     = 10259
)

// Plan is the control plane of one cluster.
type Plan struct {
	run       config.Run
	layout    config.Layout
	bin       string
	authority *pki.Authority
}

// New plans the control plane; layout is as seen by the programs.
func New(run config.Run, layout config.Layout, bin string, authority *pki.Authority) *Plan {
	return &Plan{run: run, layout: layout, bin: bin, authority: authority}
}

// Server returns the API server's address, the same inside and on the host.
func (p *Plan) Server() string {
	return fmt.Sprintf("https://%s:%d", p.run.Network.ControlPlane(), config.APIServerPort)
}

// Kubeconfig writes a kubeconfig for one of the cluster's programs and returns
// its path.
func (p *Plan) Kubeconfig(name, user string, groups ...string) (string, error) {
	path := filepath.Join(p.layout.PKI(), name+".kubeconfig")
	return path, p.authority.Kubeconfig(path, p.Server(), p.run.Config.Name, user, groups...)
}

// Units returns the programs in the order of their needs.
func (p *Plan) Units() ([]component.Unit, error) {
	apiserver, err := p.apiServer()
	if err != nil {
		return nil, err
	}
	units := []component.Unit{p.etcd(), apiserver}
	if !p.run.Config.WithoutControllerManager {
		u, err := p.controllerManager()
		if err != nil {
			return nil, err
		}
		units = append(units, u)
	}
	if !p.run.Config.WithoutScheduler {
		u, err := p.scheduler()
		if err != nil {
			return nil, err
		}
		units = append(units, u)
	}
	return units, nil
}

func (p *Plan) etcd() component.Unit {
	return component.Unit{
		Name: etcd,
		Command: &component.Command{
			Path: filepath.Join(p.bin, "etcd"),
			Args: []string{
				"--name=sluice",
				"--data-dir=" + p.layout.Etcd(),
				"--listen-client-urls=" + etcdURL,
				"--advertise-client-urls=" + etcdURL,
				"--listen-peer-urls=" + etcdPeerURL,
				"--initial-advertise-peer-urls=" + etcdPeerURL,
				"--initial-cluster=sluice=" + etcdPeerURL,
				"--listen-metrics-urls=" + etcdMetricsURL,
				"--log-level=warn",
				// A single member elects itself: nothing is gained by waiting.
				"--heartbeat-interval=20",
				"--election-timeout=100",
				// The data is thrown away with the cluster.
				"--unsafe-no-fsync",
			},
			Ready: component.HTTP(etcdMetricsURL+"/readyz", nil),
		},
	}
}

func (p *Plan) apiServer() (component.Unit, error) {
	serving, err := p.authority.Serving(APIServer,
		[]string{"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local", "localhost"},
		[]netip.Addr{p.run.Network.ControlPlane(), config.FirstService(), netip.AddrFrom4([4]byte{127, 0, 0, 1})})
	if err != nil {
		return component.Unit{}, err
	}
	kubelet, err := p.authority.Client("apiserver-kubelet-client", "kube-apiserver-kubelet-client", "system:masters")
	if err != nil {
		return component.Unit{}, err
	}
	tokens, err := p.authority.SigningKey("service-accounts")
	if err != nil {
		return component.Unit{}, err
	}
	proxyClient, err := p.authority.Client("front-proxy-client", "front-proxy-client")
	if err != nil {
		return component.Unit{}, err
	}
	probe, err := p.ready()
	if err != nil {
		return component.Unit{}, err
	}
	args := []string{
		"--etcd-servers=" + etcdURL,
		"--advertise-address=" + p.run.Network.ControlPlane().String(),
		fmt.Sprintf("--secure-port=%d", config.APIServerPort),
		"--tls-cert-file=" + serving.Cert,
		"--tls-private-key-file=" + serving.Key,
		"--client-ca-file=" + p.authority.CAFile(),
		"--kubelet-client-certificate=" + kubelet.Cert,
		"--kubelet-client-key=" + kubelet.Key,
		// Nobody resolves node names here.
		"--kubelet-preferred-address-types=InternalIP",
		"--proxy-client-cert-file=" + proxyClient.Cert,
		"--proxy-client-key-file=" + proxyClient.Key,
		"--requestheader-client-ca-file=" + p.authority.CAFile(),
		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-username-headers=X-Remote-User",
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + tokens.Cert,
		"--service-account-signing-key-file=" + tokens.Key,
		"--service-cluster-ip-range=" + config.ServiceRange.String(),
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--allow-privileged=true",
		"--profiling=false",
		// An embedded cluster stops with its last client: nothing is drained.
		"--shutdown-delay-duration=0s",
		"--feature-gates=" + p.gates(),
	}
	if p.run.Config.AuditLog {
		policy := filepath.Join(p.layout.PKI(), "audit-policy.yaml")
		if err := config.WriteFile(policy, []byte(auditPolicy), 0o644); err != nil {
			return component.Unit{}, err
		}
		args = append(args,
			"--audit-policy-file="+policy,
			"--audit-log-path="+p.layout.AuditLog(),
			"--audit-log-format=json",
			// Written before the request is answered, so that a test which has
			// the answer finds the line.
			"--audit-log-mode=blocking",
		)
	}
	return component.Unit{
		Name:     APIServer,
		After:    []string{etcd},
		Deadline: 2 * time.Minute, // on a machine that is busy otherwise
		Command: &component.Command{
			Path:  filepath.Join(p.bin, APIServer),
			Args:  append(args, p.run.Config.APIServerArgs...),
			Ready: probe,
		},
	}, nil
}

// auditPolicy records every request once, when it is answered.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
`

func (p *Plan) controllerManager() (component.Unit, error) {
	kubeconfig, err := p.Kubeconfig(ControllerManager, "system:kube-controller-manager")
	if err != nil {
		return component.Unit{}, err
	}
	return component.Unit{
		Name:  ControllerManager,
		After: []string{APIServer},
		Command: &component.Command{
			Path: filepath.Join(p.bin, ControllerManager),
			Args: []string{
				"--kubeconfig=" + kubeconfig,
				"--authentication-kubeconfig=" + kubeconfig,
				"--authorization-kubeconfig=" + kubeconfig,
				"--bind-address=127.0.0.1",
				fmt.Sprintf("--secure-port=%d", controllerMgrPort),
				"--leader-elect=false",
				"--use-service-account-credentials=true",
				"--service-account-private-key-file=" + filepath.Join(p.layout.PKI(), "service-accounts.key"),
				"--root-ca-file=" + p.authority.CAFile(),
				// A cluster that lives for minutes is kept waiting by limits
				// meant for one that is shared by many.
				"--kube-api-qps=500",
				"--kube-api-burst=1000",
				"--pvclaimbinder-sync-period=15s",
				// Overloaded machines are usual in tests; a node that is late
				// is not one that is lost.
				"--node-monitor-grace-period=60s",
				"--profiling=false",
				"--feature-gates=" + p.gates(),
			},
			Ready: component.HTTP(fmt.Sprintf("https://127.0.0.1:%d/healthz", controllerMgrPort), anyCertificate()),
		},
	}, nil
}

func (p *Plan) scheduler() (component.Unit, error) {
	kubeconfig, err := p.Kubeconfig(Scheduler, "system:kube-scheduler")
	if err != nil {
		return component.Unit{}, err
	}
	file := filepath.Join(p.layout.PKI(), "scheduler.yaml")
	if err := config.WriteFile(file, []byte(strings.ReplaceAll(schedulerConfig, "KUBECONFIG", kubeconfig)), 0o644); err != nil {
		return component.Unit{}, err
	}
	return component.Unit{
		Name:  Scheduler,
		After: []string{APIServer},
		Command: &component.Command{
			Path: filepath.Join(p.bin, Scheduler),
			Args: []string{
				"--config=" + file,
				"--authentication-kubeconfig=" + kubeconfig,
				"--authorization-kubeconfig=" + kubeconfig,
				"--bind-address=127.0.0.1",
				fmt.Sprintf("--secure-port=%d", schedulerPort),
				"--feature-gates=" + p.gates(),
			},
			Ready: component.HTTP(fmt.Sprintf("https://127.0.0.1:%d/healthz", schedulerPort), anyCertificate()),
		},
	}, nil
}

const schedulerConfig = `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection:
  leaderElect: false
clientConnection:
  kubeconfig: KUBECONFIG
  qps: 500
  burst: 1000
`

func (p *Plan) gates() string { return strings.Join(p.run.Config.Gates(), ",") }
