package slots_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-dev/sluice/internal/plan/slots"
)

var now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// claim is the n-th oldest claim of a namespace.
func claim(namespace string, n int, changes ...func(*slots.Claim)) slots.Claim {
	c := slots.Claim{
		UID: types.UID(fmt.Sprintf("%s-%03d", namespace, n)), Namespace: namespace, Name: fmt.Sprint(n),
		Created: now.Add(time.Duration(n) * time.Second), Class: "fast", Source: "Hello/" + namespace, Populator: "hello",
	}
	for _, change := range changes {
		change(&c)
	}
	return c
}

func onNode(n string) func(*slots.Claim)     { return func(c *slots.Claim) { c.Node = n } }
func ofClass(n string) func(*slots.Claim)    { return func(c *slots.Claim) { c.Class = n } }
func atMost(n int) func(*slots.Claim)        { return func(c *slots.Claim) { c.PopulatorLimit = n } }
func fromSource(n string) func(*slots.Claim) { return func(c *slots.Claim) { c.Source = n } }

func TestAsk(t *testing.T) {
	cases := map[string]struct {
		reason string
		limits slots.Limits
		held   []slots.Claim
		ahead  []slots.Claim
		ask    slots.Claim
		want   slots.Verdict
	}{
		"no limits": {
			reason: "Without limits nobody waits.",
			held:   []slots.Claim{claim("a", 1), claim("a", 2)},
			ask:    claim("a", 3), want: slots.Verdict{Granted: true},
		},
		"total": {
			reason: "The limit on all claims concerns every claim, and every older one is ahead.",
			limits: slots.Limits{Total: 1},
			held:   []slots.Claim{claim("a", 1)}, ahead: []slots.Claim{claim("b", 2), claim("a", 3), claim("c", 9)},
			ask: claim("c", 4), want: slots.Verdict{Limit: 1, Ahead: 2},
		},
		"namespace": {
			reason: "A namespace's limit concerns its own claims.",
			limits: slots.Limits{Namespace: 2},
			held:   []slots.Claim{claim("a", 1), claim("a", 2)}, ahead: []slots.Claim{claim("a", 3)},
			ask: claim("a", 4), want: slots.Verdict{Kind: slots.OfNamespace, Name: "a", Limit: 2, Ahead: 1},
		},
		"another namespace": {
			reason: "It does not concern those of others.",
			limits: slots.Limits{Namespace: 1},
			held:   []slots.Claim{claim("a", 1)},
			ask:    claim("b", 4), want: slots.Verdict{Granted: true},
		},
		"class": {
			reason: "A class has its limit over all namespaces.",
			limits: slots.Limits{Class: 1},
			held:   []slots.Claim{claim("a", 1)},
			ask:    claim("b", 1), want: slots.Verdict{Kind: slots.OfClass, Name: "fast", Limit: 1},
		},
		"node": {
			reason: "So has a node.",
			limits: slots.Limits{Node: 1},
			held:   []slots.Claim{claim("a", 1, onNode("n"))},
			ask:    claim("b", 1, onNode("n")), want: slots.Verdict{Kind: slots.OfNode, Name: "n", Limit: 1},
		},
		"no node yet": {
			reason: "A claim that has no node yet is not held up by any.",
			limits: slots.Limits{Node: 1},
			held:   []slots.Claim{claim("a", 1)},
			ask:    claim("b", 1), want: slots.Verdict{Granted: true},
		},
		"source": {
			reason: "And a source.",
			limits: slots.Limits{Source: 1},
			held:   []slots.Claim{claim("a", 1)},
			ask:    claim("a", 2), want: slots.Verdict{Kind: slots.OfSource, Name: "Hello/a", Limit: 1},
		},
		"populator": {
			reason: "A populator brings its own limit.",
			held:   []slots.Claim{claim("a", 1, atMost(1))},
			ask:    claim("b", 2, atMost(1)), want: slots.Verdict{Kind: slots.OfPopulator, Name: "hello", Limit: 1},
		},
		"lowered": {
			reason: "A limit that was lowered below what is held stops starts, nothing else.",
			limits: slots.Limits{Total: 1},
			held:   []slots.Claim{claim("a", 1), claim("a", 2), claim("a", 3)},
			ask:    claim("b", 1), want: slots.Verdict{Limit: 1},
		},
		"motion": {
			reason: "Only so many claims are begun at once.",
			limits: slots.Limits{Moving: 2},
			held:   []slots.Claim{claim("a", 1), claim("a", 2)},
			ask:    claim("b", 1), want: slots.Verdict{Kind: slots.OfMotion, Limit: 2},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := slots.New(tc.limits)
			for _, c := range tc.held {
				b.Hold(c, true, now)
			}
			for _, c := range tc.ahead {
				b.Ask(c, now)
			}
			got, _ := b.Ask(tc.ask, now)
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("%s\n-want +got:\n%s", tc.reason, d)
			}
			if again, _ := b.Ask(tc.ask, now); again != got {
				t.Errorf("asked again: %+v, want the same answer as before: %+v", again, got)
			}
		})
	}
}

// order lets the holder leave again and again and returns who came then.
func order(b *slots.Book, first slots.Claim) []types.UID {
	var out []types.UID
	for next := first; ; {
		granted := b.Leave(next.UID, now)
		if len(granted) != 1 {
			return out
		}
		next = granted[0]
		out = append(out, next.UID)
	}
}

func TestTurns(t *testing.T) {
	b := slots.New(slots.Limits{Total: 1})
	first := claim("a", 0)
	b.Ask(first, now)
	for _, c := range []slots.Claim{claim("a", 3), claim("a", 1), claim("b", 9), claim("a", 2), claim("c", 5), claim("c", 4)} {
		b.Ask(c, now)
	}
	want := []types.UID{"b-009", "c-004", "a-001", "c-005", "a-002", "a-003"}
	if d := cmp.Diff(want, order(b, first)); d != "" {
		t.Errorf("namespaces take turns, and within one the oldest comes first (-want +got):\n%s", d)
	}
}

func TestSharesAreFair(t *testing.T) {
	b := slots.New(slots.Limits{Total: 4})
	for i := range 4 {
		b.Ask(claim("many", i), now)
	}
	for i := range 1000 {
		b.Ask(claim("many", 4+i), now)
	}
	b.Ask(claim("few", 5000), now)
	b.Ask(claim("few", 5001), now)
	var got []types.UID
	for _, c := range append(b.Leave("many-000", now), b.Leave("many-001", now)...) {
		got = append(got, c.UID)
	}
	if d := cmp.Diff([]types.UID{"few-5000", "few-5001"}, got); d != "" {
		t.Errorf("a namespace that holds less comes first (-want +got):\n%s", d)
	}
}

func TestOneThatWaitsForItsOwnLimitLetsOthersPass(t *testing.T) {
	b := slots.New(slots.Limits{Total: 3, Class: 1})
	b.Ask(claim("a", 1), now)
	b.Ask(claim("a", 2), now)
	if v, _ := b.Ask(claim("a", 3, ofClass("slow")), now); !v.Granted {
		t.Errorf("a claim of another class got %+v, want a slot", v)
	}
	if v, _ := b.Ask(claim("a", 4, fromSource("other")), now); v.Granted || v.Kind != slots.OfClass || v.Ahead != 1 {
		t.Errorf("a claim of the class that is full got %+v, want to be second in line for it", v)
	}
}

func TestMotion(t *testing.T) {
	b := slots.New(slots.Limits{Moving: 1})
	b.Ask(claim("a", 1), now)
	b.Ask(claim("a", 2), now)
	b.Ask(claim("a", 3), now)
	if due := b.Due(now); !due.Equal(now.Add(slots.Settling)) {
		t.Errorf("due at %v, want after %v", due, slots.Settling)
	}
	if granted := b.Hold(claim("a", 1), false, now); len(granted) != 1 || granted[0].UID != "a-002" {
		t.Errorf("once a worker works, %+v is begun, want the next", granted)
	}
	if granted := b.Fill(now.Add(slots.Settling - 1)); len(granted) != 0 {
		t.Errorf("%+v is begun while another is in motion", granted)
	}
	if granted := b.Fill(now.Add(slots.Settling)); len(granted) != 1 || granted[0].UID != "a-003" {
		t.Errorf("when a claim has stood still for a while, %+v is begun, want the next", granted)
	}
	if due := b.Due(now); !due.IsZero() {
		t.Errorf("due at %v though nobody waits", due)
	}
}

// TestBook lets claims come, end, be deleted and be moved to other nodes at
// random, and compares the Book with a plain account of the same.
func TestBook(t *testing.T) {
	limits := slots.Limits{Total: 7, Namespace: 4, Class: 3, Node: 2, Source: 3}
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		b := slots.New(limits)
		held, waiting := map[types.UID]slots.Claim{}, map[types.UID]slots.Claim{}
		grant := func(list []slots.Claim) {
			for _, c := range list {
				if _, ok := waiting[c.UID]; !ok {
					t.Fatalf("seed %d: %s was given a slot and did not wait", seed, c.UID)
				}
				delete(waiting, c.UID)
				held[c.UID] = c
			}
		}
		for i := range 400 {
			if r.IntN(2) == 0 {
				c := claim(fmt.Sprintf("ns-%d", r.IntN(3)), i, ofClass(fmt.Sprint(r.IntN(3))), onNode(fmt.Sprint(r.IntN(4))), fromSource(fmt.Sprint(r.IntN(4))), atMost(5))
				waiting[c.UID] = c
				v, granted := b.Ask(c, now)
				if v.Granted {
					granted = append(granted, c)
				}
				grant(granted)
			} else {
				from := held
				if r.IntN(4) == 0 {
					from = waiting
				}
				if uids := slices.Sorted(maps.Keys(from)); len(uids) > 0 {
					uid := uids[r.IntN(len(uids))]
					delete(from, uid)
					grant(b.Leave(uid, now))
				}
			}
			check(t, seed, limits, held, waiting)
			if b.Holding() != len(held) || b.Waiting() != len(waiting) {
				t.Fatalf("seed %d: the Book has %d and %d, want %d and %d", seed, b.Holding(), b.Waiting(), len(held), len(waiting))
			}
		}
		// Whoever waits is served once the others end: nobody starves.
		for len(held) > 0 {
			for uid := range held {
				delete(held, uid)
				grant(b.Leave(uid, now))
				break
			}
		}
		if len(waiting) > 0 {
			t.Fatalf("seed %d: %d claims are never served", seed, len(waiting))
		}
	}
}

// check says that no limit is exceeded, and that nobody waits for nothing.
func check(t *testing.T, seed uint64, l slots.Limits, held, waiting map[types.UID]slots.Claim) {
	t.Helper()
	counts := map[string]int{}
	room := func(c slots.Claim) bool {
		return len(held) < l.Total && counts["ns"+c.Namespace] < l.Namespace && counts["class"+c.Class] < l.Class &&
			counts["node"+c.Node] < l.Node && counts["source"+c.Source] < l.Source && counts["populator"] < c.PopulatorLimit
	}
	for _, c := range held {
		for _, p := range []string{"all", "ns" + c.Namespace, "class" + c.Class, "node" + c.Node, "source" + c.Source, "populator"} {
			counts[p]++
		}
	}
	for p, n := range counts {
		for prefix, limit := range map[string]int{"all": l.Total, "ns": l.Namespace, "class": l.Class, "node": l.Node, "source": l.Source, "populator": 5} {
			if len(p) >= len(prefix) && p[:len(prefix)] == prefix && n > limit {
				t.Fatalf("seed %d: %d claims hold slots of %s, limit %d", seed, n, p, limit)
			}
		}
	}
	for _, c := range waiting {
		if room(c) {
			t.Fatalf("seed %d: %+v waits though there is room", seed, c)
		}
	}
}
