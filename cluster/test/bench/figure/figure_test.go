package figure_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-dev/sluice/cluster/test/bench/figure"
)

func TestFigure(t *testing.T) {
	cases := map[string]struct {
		reason string
		figure figure.Figure
		want   string
	}{
		"met": {
			"A value at its target meets it.",
			figure.New("burst-100-bound", 15, "s", figure.AtMost(15)).Above(10),
			"figure burst-100-bound 15 s floor 10 ratio 1.5 target <=15 ok",
		},
		"missed": {
			"A value above its target misses it, whatever the floor.",
			figure.New("burst-100-bound", 15.0004, "s", figure.AtMost(15)).Above(15),
			"figure burst-100-bound 15 s floor 15 ratio 1 target <=15 MISSED",
		},
		"ratio met": {
			"Some values are judged by their floor.",
			figure.New("node-bound", 1150, "ms", figure.TimesFloor(1.15)).Above(1000),
			"figure node-bound 1150 ms floor 1000 ratio 1.15 target <=1.15x-floor ok",
		},
		"ratio unknown": {
			"What is to be judged by a floor does not pass without one.",
			figure.New("node-bound", 1, "ms", figure.TimesFloor(1.15)).Above(0),
			"figure node-bound 1 ms floor 0 ratio - target <=1.15x-floor MISSED",
		},
		"counted": {
			"What is only counted is never missed.",
			figure.New("claim-misbound", 7, "events", figure.Counted()),
			"figure claim-misbound 7 events floor - ratio - target counted ok",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := tc.figure.String(); got != tc.want {
				t.Errorf("%s\ngot  %s\nwant %s", tc.reason, got, tc.want)
			}
		})
	}
}

func TestReport(t *testing.T) {
	var out strings.Builder
	r := figure.NewReport(&out)
	r.Add(figure.New("a", 1, "s", figure.AtMost(2)).Above(1), figure.New("b", 3, "s", figure.AtMost(2)))
	r.Note("processors", 2)
	path := filepath.Join(t.TempDir(), "new", "figures.json")
	if err := r.Save(path); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"figures": []any{
			map[string]any{"name": "a", "value": 1.0, "unit": "s", "floor": 1.0, "ratio": 1.0, "target": "<=2", "ok": true},
			map[string]any{"name": "b", "value": 3.0, "unit": "s", "target": "<=2", "ok": false, "over": 0.5},
		},
		"notes": map[string]any{"processors": 2.0},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("file differs (-want +got):\n%s", d)
	}
	if lines := strings.Count(out.String(), "\n"); lines != 2 || r.Missed() != 1 {
		t.Errorf("%d lines, %d missed, want 2 and 1", lines, r.Missed())
	}
}
