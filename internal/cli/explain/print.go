package explain

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/sluice-dev/sluice/api/v1alpha1"
	"github.com/sluice-dev/sluice/internal/cli"
)

// maxText is the longest text of others that one line of a table gets.
const maxText = 300

// printJSON prints a story for programs.
func printJSON(w io.Writer, s Story) error {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("encode story of %q: %w", s.Name, err)
	}
	_, err = fmt.Fprintf(w, "%s\n", text)
	return err
}

// printTable prints a story for people. Times are ages, as kubectl's.
func printTable(w io.Writer, s Story, now time.Time) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	line := func(name, value string) {
		if value = cli.Clean(value); value != "" {
			fmt.Fprintf(t, "%s:\t%s\n", name, value)
		}
	}
	fmt.Fprintf(t, "%s\n\n", cli.Clean(s.Headline))
	line("Claim", s.Namespace+"/"+s.Name)
	line("Source", s.Source)
	line("Digest", s.Digest)
	line("Populator", s.Populator)
	line("Volume", s.Volume)
	line("Node", s.Node)
	line("Phase", s.Phase)
	line("Progress", s.Progress)
	if s.Attempt > 0 {
		line("Attempt", fmt.Sprint(s.Attempt))
	}
	line("Reason", s.Reason)
	line("Message", s.Message)
	fmt.Fprintln(t)
	line("Waits for", s.WaitsFor)
	line("Next", s.Next)
	line("To do", s.Do)
	if err := t.Flush(); err != nil {
		return err
	}
	list(w, "Notes", s.Notes)
	if len(s.Temporaries) > 0 {
		fmt.Fprint(w, "\nTemporaries:\n")
		for _, x := range s.Temporaries {
			fmt.Fprintf(t, "  %s\t%s\t%s\n", x.Kind, x.Name, cli.Clean(x.State))
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	fmt.Fprint(w, "\nWhat happened:\n")
	for _, h := range s.Happened {
		mark, times := " ", ""
		if h.Warning {
			mark = "!"
		}
		if h.Times > 1 {
			times = fmt.Sprintf(" (%d times)", h.Times)
		}
		fmt.Fprintf(t, "%s %s\t%s\t%s\t%s%s\n", mark, age(now, h.At), h.On, cli.Clean(h.Reason), short(cli.Clean(h.Text)), times)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	list(w, "There may be more to tell; you lack the right to", s.Missing)
	return nil
}

func list(w io.Writer, title string, lines []string) {
	if len(lines) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%s:\n", title)
	for _, l := range lines {
		fmt.Fprintf(w, "  %s\n", cli.Clean(l))
	}
}

func short(s string) string {
	if runes := []rune(s); len(runes) > maxText {
		return strings.TrimSpace(string(runes[:maxText])) + "..."
	}
	return s
}

func age(now, at time.Time) string {
	if at.IsZero() {
		return "?"
	}
	return span(now.Sub(at))
}

// span is a length of time as kubectl shows ages.
func span(d time.Duration) string { return duration.HumanDuration(max(d, 0)) }

// fresh is how old figures are at most while they move and are read in time.
const fresh = 10 * time.Second

// progress says how far a worker is, as far as it is known, and since when that
// has been so, if it has been for longer than it takes to look again.
func progress(p *v1alpha1.Progress, runs bool, now time.Time) string {
	if p == nil || p.Bytes == 0 && p.Files == 0 && p.Summary == "" {
		return ""
	}
	text := size(p.Bytes)
	if p.TotalBytes > 0 {
		text += " of " + size(p.TotalBytes)
	}
	if p.Files > 0 {
		text += fmt.Sprintf(", %d files", p.Files)
	}
	if p.BytesPerSecond > 0 {
		text += ", " + size(p.BytesPerSecond) + "/s"
		if left := p.TotalBytes - p.Bytes; left > 0 {
			text += ", about " + span(time.Duration(float64(left)/float64(p.BytesPerSecond)*float64(time.Second))) + " to go"
		}
	}
	if runs && p.UpdatedAt != nil && now.Sub(p.UpdatedAt.Time) > fresh {
		text += ", as of " + age(now, p.UpdatedAt.Time) + " ago"
	}
	return text
}

// size is a number of bytes, rounded down to three digits of the largest unit
// that fits.
func size(n int64) string {
	for _, u := range []struct {
		name string
		size int64
	}{{"Ti", 1 << 40}, {"Gi", 1 << 30}, {"Mi", 1 << 20}, {"Ki", 1 << 10}} {
		if n >= u.size {
			return fmt.Sprintf("%.1f%sB", float64(n)/float64(u.size), u.name)
		}
	}
	return resource.NewQuantity(n, resource.BinarySI).String() + "B"
}
