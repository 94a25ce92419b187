package populator

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"time"
)

// entrySuffix is how the files of entries end.
const entrySuffix = ".fill.json"

// tempSuffix is how files end that are to become one.
const tempSuffix = ".tmp"

// fileJournal has one file for each fill.
type fileJournal struct {
	root *os.Root

	mu     sync.Mutex
	pruned time.Time
}

// FileJournal keeps entries as files in a directory, which it makes if need be.
// The directory outlives the plugin's container, on an emptyDir, or its Pod, on a
// claim, and belongs to one process at a time.
func FileJournal(dir string) (Journal, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make journal: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	j := &fileJournal{root: root}
	if err := j.prune(time.Now()); err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return j, nil
}

func (j *fileJournal) Get(_ context.Context, id string) (Entry, bool, error) {
	var e Entry
	data, err := j.root.ReadFile(id + entrySuffix)
	if errors.Is(err, fs.ErrNotExist) {
		return e, false, nil
	}
	if err != nil {
		return e, false, fmt.Errorf("read journal: %w", err)
	}
	if err := json.Unmarshal(data, &e); err != nil {
		return e, false, fmt.Errorf("decode journal entry %q: %w", id, err)
	}
	return e, true, nil
}

// Put replaces the file by renaming a new one, so that a crash leaves the old
// entry or the new one.
func (j *fileJournal) Put(_ context.Context, id string, e Entry) error {
	data, err := json.Marshal(e)
	if err != nil {
		return fmt.Errorf("encode journal entry %q: %w", id, err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if e.Time.Sub(j.pruned) > keepCleaned {
		if err := j.prune(e.Time); err != nil {
			return err
		}
	}
	return j.replace(id+entrySuffix, data)
}

func (j *fileJournal) replace(name string, data []byte) error {
	next := name + "." + rand.Text() + tempSuffix
	f, err := j.root.OpenFile(next, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("write journal: %w", err)
	}
	_, err = f.Write(data)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("write journal: %w", errors.Join(err, j.root.Remove(next)))
	}
	if err := j.root.Rename(next, name); err != nil {
		return fmt.Errorf("write journal: %w", err)
	}
	return j.sync()
}

// sync makes the names in the directory durable.
func (j *fileJournal) sync() error {
	dir, err := j.root.Open(".")
	if err != nil {
		return fmt.Errorf("sync journal: %w", err)
	}
	if err := errors.Join(dir.Sync(), dir.Close()); err != nil {
		return fmt.Errorf("sync journal: %w", err)
	}
	return nil
}

// prune removes entries that nobody can ask for any more, and what a crash left.
func (j *fileJournal) prune(now time.Time) error {
	j.pruned = now
	names, err := fs.ReadDir(j.root.FS(), ".")
	if err != nil {
		return fmt.Errorf("list journal: %w", err)
	}
	for _, entry := range names {
		if !j.stale(entry, now) {
			continue
		}
		if err := j.root.Remove(entry.Name()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("prune journal: %w", err)
		}
	}
	return nil
}

func (j *fileJournal) stale(entry fs.DirEntry, now time.Time) bool {
	name := entry.Name()
	if strings.HasSuffix(name, tempSuffix) {
		info, err := entry.Info()
		return err == nil && now.Sub(info.ModTime()) > time.Minute
	}
	id, ok := strings.CutSuffix(name, entrySuffix)
	if !ok {
		return false
	}
	// A damaged entry is left for whoever asks for it to report.
	e, ok, err := j.Get(context.Background(), id)
	return err == nil && ok && e.Stage == StageCleaned && now.Sub(e.Time) > keepCleaned
}
