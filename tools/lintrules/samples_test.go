package lintrules

import "strings"

// sample is one file and what the linters have to say about it.
type sample struct {
	// name tells the situation.
	name string
	// path is where the file stands in the repository.
	path string
	// imports are the import paths; what body does not use is imported blank.
	imports []string
	// body is the file after its imports.
	body string
	// want is the linter and message a pattern of what it says; empty where
	// nothing is wrong.
	want, message string
}

// samples break every rule of our own at least once, and keep the ones that are
// easily written too wide.
var samples = []sample{
	{name: "a planner decides", path: "internal/plan/populate/fine.go", imports: []string{"time", "k8s.io/api/core/v1"},
		body: "// Fine is pure.\nfunc Fine(p corev1.Pod, now time.Time) bool { return p.Deadline.Before(now) }"},
	{name: "a planner with a client", path: "internal/plan/populate/client.go", imports: []string{"k8s.io/client-go/rest"},
		want: "depguard", message: "not allowed from list 'plan'"},
	{name: "a planner with controller-runtime", path: "internal/plan/affinity/runtime.go", imports: []string{"sigs.k8s.io/controller-runtime/pkg/client"},
		want: "depguard", message: "not allowed from list 'plan'"},
	{name: "a planner that reads files", path: "internal/plan/populate/files.go", imports: []string{"os"},
		want: "depguard", message: "does no I/O"},
	{name: "a planner on the network", path: "internal/plan/populate/network.go", imports: []string{"net/http"},
		want: "depguard", message: "does no I/O"},
	{name: "a planner that runs programs", path: "internal/plan/populate/exec.go", imports: []string{"os/exec"},
		want: "depguard", message: "does no I/O"},
	{name: "a planner that logs", path: "internal/plan/populate/log.go", imports: []string{"log/slog"},
		want: "depguard", message: "its caller logs"},
	{name: "a planner that throws dice", path: "internal/plan/affinity/dice.go", imports: []string{"math/rand/v2"},
		want: "depguard", message: "same answer twice"},
	{name: "a planner with a clock", path: "internal/plan/populate/clock.go", imports: []string{"time"},
		body: "var started = time.Now()\n\nvar _ = started", want: "forbidigo", message: "time is an input here"},
	{name: "a template with a clock", path: "internal/template/clock.go", imports: []string{"time"},
		body: "var started = time.Now()\n\nvar _ = started", want: "forbidigo", message: "time is an input here"},
	{name: "a template with a client", path: "internal/template/client.go", imports: []string{"k8s.io/client-go/rest"},
		want: "depguard", message: "not allowed from list 'template'"},
	{name: "a caller of plugins that reconciles", path: "internal/plugin/reconcile.go",
		imports: []string{"sigs.k8s.io/controller-runtime/pkg/client"}, want: "depguard", message: "not allowed from list 'plugins'"},
	{name: "a caller of plugins that knows a controller", path: "internal/plugin/controller.go",
		imports: []string{"github.com/sluice-dev/sluice/internal/controller/population"}, want: "depguard", message: "not allowed from list 'plugins'"},
	{name: "a controller with a clock", path: "internal/controller/population/clock.go", imports: []string{"time"},
		body: "var started = time.Now()\n\nvar _ = started", want: "forbidigo", message: "time is an input here"},
	{name: "a command with a clock", path: "cmd/sluice-manager/main.go", imports: []string{"fmt", "time"},
		body: "func main() { fmt.Println(time.Now()) }"},
	{name: "a mover that knows Kubernetes", path: "internal/mover/archive/kubernetes.go", imports: []string{"k8s.io/apimachinery/pkg/types"},
		want: "depguard", message: "movers know nothing of Kubernetes"},
	{name: "a mover with the worker's contract", path: "internal/mover/archive/contract.go",
		imports: []string{"github.com/sluice-dev/sluice/api/worker"}, body: "var _ = worker.Contract"},
	{name: "the worker's contract", path: "api/worker/contract.go", body: "// Contract is a sample.\nconst Contract = 1"},
	{name: "the worker's contract with Kubernetes", path: "api/worker/kubernetes.go", imports: []string{"k8s.io/apimachinery/pkg/types"},
		want: "depguard", message: "not allowed from list 'contract'"},
	{name: "a controller that knows a sibling", path: "internal/controller/populator/sibling.go",
		imports: []string{"github.com/sluice-dev/sluice/internal/controller/population"}, want: "depguard", message: "controllers meet through the API"},
	{name: "a webhook that knows a sibling", path: "internal/webhook/claim/sibling.go",
		imports: []string{"github.com/sluice-dev/sluice/internal/webhook/gate"}, want: "depguard", message: "webhooks do not know each other"},
	{name: "the sibling", path: "internal/webhook/gate/gate.go"},
	{name: "a source that knows a sibling", path: "internal/mover/source/http/sibling.go",
		imports: []string{"github.com/sluice-dev/sluice/internal/mover/source/inline"}, want: "depguard", message: "sources do not know each other"},
	{name: "the sibling", path: "internal/mover/source/inline/inline.go"},
	{name: "API types with a client", path: "api/v1alpha1/client.go", imports: []string{"k8s.io/client-go/rest"},
		want: "depguard", message: "not allowed from list 'api'"},
	{name: "API types", path: "api/v1alpha1/types.go", imports: []string{"k8s.io/apimachinery/pkg/apis/meta/v1"},
		body: "// Thing is a kind.\ntype Thing struct{ metav1.TypeMeta }"},
	{name: "the SDK with a client", path: "populator/client.go", imports: []string{"k8s.io/client-go/rest"},
		want: "depguard", message: "not allowed from list 'sdk'"},
	{name: "the SDK with types", path: "populator/types.go", imports: []string{"k8s.io/api/core/v1"},
		body: "// Pod is a kind.\ntype Pod struct{ corev1.Pod }"},
	{name: "the product with Kubernetes' module", path: "internal/observe/kubernetes.go", imports: []string{"k8s.io/kubernetes/pkg/apis/core"},
		want: "depguard", message: "embedded cluster alone"},
	{name: "the product with its test bench", path: "internal/apply/bench.go", imports: []string{"github.com/sluice-dev/sluice/cluster/images"},
		want: "depguard", message: "does not know its test bench"},
	// These three are texts for the linter, which never run: it has to refuse a sleep in tests, and to allow it where the kernel announces nothing.
	{name: "a test that sleeps", path: "internal/observe/sleep_test.go", imports: []string{"testing", "time"},
		body: "func TestSleep(*testing.T) { time.Sleep(time.Second) }", want: "forbidigo", message: "poll the condition"},
	{name: "a cluster's test that sleeps", path: "cluster/node/sleep_test.go", imports: []string{"testing", "time"},
		body: "func TestSleep(*testing.T) { time.Sleep(time.Second) }", want: "forbidigo", message: "poll the condition"},
	{name: "a cluster that looks again", path: "cluster/node/sleep.go", imports: []string{"time"},
		body: "func again() { time.Sleep(time.Second) }\n\nvar _ = again"},
	{name: "a test with testify", path: "internal/observe/testify_test.go", imports: []string{"github.com/stretchr/testify/require"},
		want: "depguard", message: "plain testing and go-cmp"},
	{name: "a test with ginkgo", path: "internal/observe/ginkgo_test.go", imports: []string{"github.com/onsi/ginkgo/v2"},
		want: "depguard", message: "plain testing and go-cmp"},
	{name: "a test with gomega", path: "internal/observe/gomega_test.go", imports: []string{"github.com/onsi/gomega"},
		want: "depguard", message: "plain testing and go-cmp"},
	{name: "a test's own context", path: "internal/observe/context_test.go", imports: []string{"context", "testing"},
		body: "func TestContext(*testing.T) { _ = context.Background() }", want: "usetesting", message: "t.Context|Context\\(\\)"},
	{name: "a package named util", path: "internal/util/doc.go", want: "revive", message: "\"util\""},
	{name: "a package named common", path: "internal/common/doc.go", want: "revive", message: "\"common\""},
	{name: "a package named helpers", path: "internal/helpers/doc.go", want: "revive", message: "\"helpers\""},
	{name: "an undocumented name", path: "internal/apply/naked.go", body: "func Naked() {}",
		want: "revive", message: "should have comment"},
	{name: "an error compared", path: "internal/apply/compared.go", imports: []string{"io"},
		body: "func ended(err error) bool { return err == io.EOF }\n\nvar _ = ended", want: "errorlint", message: "wrapped errors"},
	{name: "an exception without a reason", path: "internal/apply/exception.go", imports: []string{"io"},
		body: "func over(err error) bool { return err == io.EOF } //nolint:errorlint\n\nvar _ = over", want: "nolintlint", message: "explanation"},
	{name: "an alias of one's own", path: "internal/apply/alias.go", imports: []string{"k8s.io/api/storage/v1"},
		body: "var _ v1.StorageClass", want: "importas", message: "storagev1"},
	{name: "an enum half looked at", path: "internal/apply/enum.go",
		body: "type phase string\n\nconst (\n\tone phase = \"1\"\n\ttwo phase = \"2\"\n)\n\nfunc isOne(p phase) bool {\n\tswitch p {\n\tcase one:\n\t\treturn true\n\t}\n\treturn p != two\n}\n\nvar _ = isOne",
		want: "exhaustive", message: "missing cases"},
	{name: "a library that ends the process", path: "internal/apply/exit.go", imports: []string{"os"},
		body: "func end() { os.Exit(1) }\n\nvar _ = end", want: "forbidigo", message: "only main and TestMain"},
	{name: "a file too long", path: "internal/apply/long.go", body: strings.Repeat("// line\n", 500),
		want: "revive", message: "file length"},
}

// stubs stand in for the modules that samples import: the rules look at import
// paths, so it takes no more than what the samples use. By module, package.
var stubs = map[string]map[string]string{
	"github.com/stretchr/testify":          {"require": ""},
	"github.com/onsi/ginkgo/v2":            {".": ""},
	"github.com/onsi/gomega":               {".": ""},
	"github.com/sluice-dev/sluice/cluster": {"images": ""},
	"k8s.io/api": {
		"core/v1":    "type Pod struct{ Deadline time.Time }",
		"storage/v1": "type StorageClass struct{}",
	},
	"k8s.io/apimachinery": {
		"pkg/apis/meta/v1": "type TypeMeta struct{}",
		"pkg/types":        "",
	},
	"k8s.io/client-go":               {"rest": ""},
	"k8s.io/kubernetes":              {"pkg/apis/core": ""},
	"sigs.k8s.io/controller-runtime": {"pkg/client": ""},
}

// aliases are the names under which samples use what they import.
var aliases = map[string]string{
	"k8s.io/api/core/v1":                   "corev1",
	"k8s.io/apimachinery/pkg/apis/meta/v1": "metav1",
}
