// Package readahead reads a stream in a goroutine of its own, so that what
// makes the data and what takes it work at the same time.
package readahead

import (
	"errors"
	"io"
	"sync"
)

// Sizes of the buffers: together the most that is in memory.
const (
	bufferSize = 512 << 10
	buffers    = 4
)

// errClosed is what a reader returns after Close.
var errClosed = errors.New("read ahead: reader is closed")

// Reader is a stream that is read ahead of its use. It is used by one goroutine
// at a time.
type Reader struct {
	full  chan chunk
	empty chan []byte
	done  chan struct{}
	once  sync.Once
	ended sync.WaitGroup
	now   chunk
	rest  []byte
}

type chunk struct {
	data []byte
	err  error
}

var _ io.ReadCloser = (*Reader)(nil)

// New starts to read from in. The caller calls Close before it closes or uses
// in.
func New(in io.Reader) *Reader {
	r := &Reader{
		full:  make(chan chunk, buffers),
		empty: make(chan []byte, buffers),
		done:  make(chan struct{}),
	}
	for range buffers {
		r.empty <- nil // made when first used: short streams need one
	}
	r.ended.Add(1)
	go r.fill(in)
	return r
}

// Read implements io.Reader.
func (r *Reader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for len(r.rest) == 0 {
		if r.now.err != nil {
			return 0, r.now.err
		}
		if r.now.data != nil {
			r.empty <- r.now.data // has room: this buffer came from there
		}
		select {
		case r.now = <-r.full:
			r.rest = r.now.data
		case <-r.done:
			return 0, errClosed
		}
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// Close ends reading ahead. It waits for a Read of the stream below to return.
func (r *Reader) Close() error {
	r.once.Do(func() { close(r.done) })
	r.ended.Wait()
	return nil
}

func (r *Reader) fill(in io.Reader) {
	defer r.ended.Done()
	for {
		var buf []byte
		select {
		case buf = <-r.empty:
		case <-r.done:
			return
		}
		if buf == nil {
			buf = make([]byte, bufferSize)
		}
		buf = buf[:cap(buf)]
		n, err := r.fillOne(in, buf)
		select {
		case r.full <- chunk{data: buf[:n], err: err}:
		case <-r.done:
			return
		}
		if err != nil {
			return
		}
	}
}

// fillOne fills buf, but gives away what it has when nothing is left to take.
func (r *Reader) fillOne(in io.Reader, buf []byte) (int, error) {
	n := 0
	for n < len(buf) {
		m, err := in.Read(buf[n:])
		n += m
		if err != nil {
			return n, err //nolint:wrapcheck // io.Reader's contract
		}
		if n > 0 && len(r.full) == 0 {
			break
		}
	}
	return n, nil
}
