package topology

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var (
	a1 = Node{ID: "n-a1", Zone: "a", Region: "r", Generations: []Generation{Gen1, Gen2}}
	a2 = Node{ID: "n-a2", Zone: "a", Region: "r", Generations: []Generation{Gen1}}
	b1 = Node{ID: "n-b1", Zone: "b", Region: "r", Generations: []Generation{Gen2}}
	x  = Node{ID: "n-x", Region: "r"}

	all = []Node{a1, a2, b1, x}
)

func TestReach(t *testing.T) {
	cases := map[string]struct {
		reason   string
		location Location
		segments map[string]string
		reached  []string
	}{
		"Zonal": {
			reason:   "A zonal volume is reached from its zone only, and a node without a zone is in none.",
			location: Location{Placement: Zonal, Node: "n-a1", Zone: "a", Region: "r"},
			segments: map[string]string{ZoneKey: "a"},
			reached:  []string{"n-a1", "n-a2"},
		},
		"Regional": {
			reason:   "A regional volume is reached from every zone of the region.",
			location: Location{Placement: Regional, Node: "n-a1", Zone: "a", Region: "r"},
			segments: map[string]string{RegionKey: "r"},
			reached:  []string{"n-a1", "n-a2", "n-b1", "n-x"},
		},
		"Node": {
			reason:   "A local volume is reached from its node only.",
			location: Location{Placement: OnNode, Node: "n-a2", Zone: "a", Region: "r"},
			segments: map[string]string{NodeKey: "n-a2"},
			reached:  []string{"n-a2"},
		},
		"ZonalAndGeneration": {
			reason:   "A generation cuts off the nodes of the zone that lack it.",
			location: Location{Placement: Zonal, Generation: Gen2, Zone: "a"},
			segments: map[string]string{ZoneKey: "a", "sim.csi.sluice.dev/gen2": "true"},
			reached:  []string{"n-a1"},
		},
		"NoZones": {
			reason:   "In a cluster without zones a zonal volume is reached from everywhere.",
			location: Location{Placement: Zonal},
			segments: map[string]string{},
			reached:  []string{"n-a1", "n-a2", "n-b1", "n-x"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.segments, tc.location.Segments()); diff != "" {
				t.Errorf("%s\nSegments(): -want, +got:\n%s", tc.reason, diff)
			}
			var reached []string
			for _, n := range all {
				if tc.location.ReachedBy(n) {
					reached = append(reached, n.ID)
				}
			}
			if diff := cmp.Diff(tc.reached, reached); diff != "" {
				t.Errorf("%s\nReachedBy(): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestChoose(t *testing.T) {
	type offers = []map[string]string
	cases := map[string]struct {
		reason string
		want   Location
		offers offers
		nodes  []Node
		chosen Location
		err    error
	}{
		"FirstOffer": {
			reason: "The preferred topology comes first and is taken.",
			want:   Location{Placement: Zonal},
			offers: offers{b1.Segments(), a1.Segments()},
			nodes:  all,
			chosen: Location{Placement: Zonal, Node: "n-b1", Zone: "b", Region: "r"},
		},
		"OfferOfAZone": {
			reason: "What a class's allowed topology leaves open is filled in from the nodes there.",
			want:   Location{Placement: Regional},
			offers: offers{{ZoneKey: "b"}},
			nodes:  all,
			chosen: Location{Placement: Regional, Node: "n-b1", Zone: "b", Region: "r"},
		},
		"GenerationSkipsOffer": {
			reason: "An offered node without the generation is passed over.",
			want:   Location{Placement: Zonal, Generation: Gen2},
			offers: offers{a2.Segments(), a1.Segments()},
			nodes:  all,
			chosen: Location{Placement: Zonal, Generation: Gen2, Node: "n-a1", Zone: "a", Region: "r"},
		},
		"GenerationNowhere": {
			reason: "Without any offer of the generation there is no place.",
			want:   Location{Placement: Zonal, Generation: Gen2},
			offers: offers{a2.Segments()},
			nodes:  all,
			err:    ErrNoPlace,
		},
		"GenerationLeftOpen": {
			reason: "An offer of a zone allows any generation; its home node is one that has it.",
			want:   Location{Placement: Zonal, Generation: Gen1},
			offers: offers{{ZoneKey: "a"}},
			nodes:  []Node{b1, a2},
			chosen: Location{Placement: Zonal, Generation: Gen1, Node: "n-a2", Zone: "a", Region: "r"},
		},
		"ZoneAsked": {
			reason: "A zone named by the class is a condition.",
			want:   Location{Placement: Zonal, Zone: "b"},
			offers: offers{a1.Segments(), b1.Segments()},
			nodes:  all,
			chosen: Location{Placement: Zonal, Node: "n-b1", Zone: "b", Region: "r"},
		},
		"ZonelessNodeSkipped": {
			reason: "A zonal volume goes to a zone if there is any.",
			want:   Location{Placement: Zonal},
			offers: offers{x.Segments(), a1.Segments()},
			nodes:  all,
			chosen: Location{Placement: Zonal, Node: "n-a1", Zone: "a", Region: "r"},
		},
		"NoZonesAtAll": {
			reason: "A cluster without zones can have volumes too.",
			want:   Location{Placement: Zonal},
			offers: offers{{NodeKey: "n"}},
			chosen: Location{Placement: Zonal, Node: "n"},
		},
		"NoOffers": {
			reason: "Without a requirement the first node's place is taken.",
			want:   Location{Placement: Zonal},
			nodes:  all,
			chosen: Location{Placement: Zonal, Node: "n-a1", Zone: "a", Region: "r"},
		},
		"NobodyKnown": {
			reason: "Before any node is known a volume is accessible everywhere.",
			want:   Location{Placement: Zonal},
			chosen: Location{Placement: Zonal},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := Choose(tc.want, tc.offers, tc.nodes)
			if !errors.Is(err, tc.err) {
				t.Fatalf("%s\nChoose(): want error %v, got %v", tc.reason, tc.err, err)
			}
			if diff := cmp.Diff(tc.chosen, got); diff != "" {
				t.Errorf("%s\nChoose(): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestApply(t *testing.T) {
	home := Location{Placement: Zonal, Generation: Gen1, Node: "n-a1", Zone: "a", Region: "r"}
	cases := map[string]struct {
		reason     string
		from       Location
		parameters map[string]string
		want       Location
		duration   time.Duration
		fails      bool
	}{
		"ToRegional": {
			reason:     "Home stays known, so that the way back is open.",
			from:       home,
			parameters: map[string]string{"placement": "regional", "migrationSeconds": "60"},
			want:       Location{Placement: Regional, Generation: Gen1, Node: "n-a1", Zone: "a", Region: "r"},
			duration:   time.Minute,
		},
		"BackToZonal": {
			reason:     "A regional volume returns to its home zone.",
			from:       Location{Placement: Regional, Zone: "a", Region: "r"},
			parameters: map[string]string{"placement": "zonal"},
			want:       Location{Placement: Zonal, Zone: "a", Region: "r"},
		},
		"Generation": {
			reason:     "Only the keys that are given change anything.",
			from:       home,
			parameters: map[string]string{"generation": "gen2", "csi.storage.k8s.io/pv/name": "pv-1"},
			want:       Location{Placement: Zonal, Generation: Gen2, Node: "n-a1", Zone: "a", Region: "r"},
		},
		"OtherZone": {
			reason:     "A move to another zone leaves the old node behind.",
			from:       home,
			parameters: map[string]string{"zone": "b"},
			want:       Location{Placement: Zonal, Generation: Gen1, Zone: "b", Region: "r"},
		},
		"NoSuchZone":         {reason: "A zone without a node is refused.", from: home, parameters: map[string]string{"zone": "z"}, fails: true},
		"NoRegion":           {reason: "Regional needs a region.", from: Location{Placement: Zonal, Zone: "a"}, parameters: map[string]string{"placement": "regional"}, fails: true},
		"UnknownKey":         {reason: "A misspelt key is refused.", from: home, parameters: map[string]string{"placment": "zonal"}, fails: true},
		"UnknownPlacement":   {reason: "A misspelt value is refused.", from: home, parameters: map[string]string{"placement": "global"}, fails: true},
		"UnknownGeneration":  {reason: "A misspelt value is refused.", from: home, parameters: map[string]string{"generation": "gen9"}, fails: true},
		"NegativeDuration":   {reason: "A move takes no negative time.", from: home, parameters: map[string]string{"migrationSeconds": "-1"}, fails: true},
		"EndlessDuration":    {reason: "A day is the most that a move takes.", from: home, parameters: map[string]string{"migrationSeconds": "86401"}, fails: true},
		"NoThroughputAtZero": {reason: "A rate is positive.", from: home, parameters: map[string]string{"iops": "0"}, fails: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			change, err := ParseMutable(tc.parameters)
			var got Location
			if err == nil {
				got, err = change.Apply(tc.from, all)
			}
			if tc.fails != (err != nil) {
				t.Fatalf("%s\nwant error %t, got %v", tc.reason, tc.fails, err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\nApply(): -want, +got:\n%s", tc.reason, diff)
			}
			if err == nil && change.Duration != tc.duration {
				t.Errorf("%s\nDuration: want %s, got %s", tc.reason, tc.duration, change.Duration)
			}
		})
	}
}

func TestParseClass(t *testing.T) {
	got, err := ParseClass(map[string]string{"generation": "gen2", "csi.storage.k8s.io/pvc/name": "c1"})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Location{Placement: Zonal, Generation: Gen2}, got); diff != "" {
		t.Errorf("a class is zonal unless it says otherwise: -want, +got:\n%s", diff)
	}
	if _, err := ParseClass(map[string]string{"migrationSeconds": "1"}); err == nil {
		t.Error("want a mutable parameter refused in a class")
	}
}

func TestParseGenerations(t *testing.T) {
	got, err := ParseGenerations("gen2, gen1,gen2")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Generation{Gen1, Gen2}, got); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
	if _, err := ParseGenerations("gen3"); err == nil {
		t.Error("want an unknown generation refused")
	}
}
