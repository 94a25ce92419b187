package template

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/sluice-dev/sluice/api/v1alpha1"
)

// TestExamplesCompile holds that every Populator that we publish, in examples
// or as the first block of the documentation, is one that we accept.
func TestExamplesCompile(t *testing.T) {
	files, err := filepath.Glob("../../examples/*/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{}
	for _, file := range append(files, "../../docs/populators.md") {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Ext(file) == ".md" {
			_, after, _ := strings.Cut(string(text), "```yaml\n")
			block, _, _ := strings.Cut(after, "```")
			text = []byte(block)
		}
		texts[file] = string(text)
	}
	found := 0
	for file, text := range texts {
		for _, document := range strings.Split(text, "\n---") {
			var kind metav1.TypeMeta
			if err := yaml.Unmarshal([]byte(document), &kind); err != nil || kind.Kind != "Populator" {
				continue
			}
			found++
			p := &v1alpha1.Populator{}
			if err := yaml.UnmarshalStrict([]byte(document), p); err != nil {
				t.Errorf("read %s: %v", file, err)
				continue
			}
			if _, errs := Compile(&p.Spec, nil); len(errs) > 0 {
				t.Errorf("compile %s: %v", file, errs.ToAggregate())
			}
		}
	}
	if found < 2 {
		t.Errorf("found %d Populators, want those of the examples and the documentation", found)
	}
}
