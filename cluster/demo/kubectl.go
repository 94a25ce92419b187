package demo

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/sluice-dev/sluice/cluster/child"
)

// kubectl runs the real kubectl where the examples are.
type kubectl struct {
	bin, kubeconfig, dir string
	out                  io.Writer
}

// run shows a command as a user would type it and what it prints, which it
// also returns.
func (k kubectl) run(ctx context.Context, args ...string) (string, error) {
	fmt.Fprintf(k.out, "$ kubectl %s\n", strings.Join(args, " "))
	var printed bytes.Buffer
	if err := k.exec(ctx, io.MultiWriter(&printed, k.out), args...); err != nil {
		return printed.String(), err
	}
	return printed.String(), nil
}

// ask runs a command without showing it.
func (k kubectl) ask(ctx context.Context, args ...string) (string, error) {
	var printed bytes.Buffer
	if err := k.exec(ctx, &printed, args...); err != nil {
		return "", err
	}
	return printed.String(), nil
}

func (k kubectl) exec(ctx context.Context, out io.Writer, args ...string) error {
	cmd := child.Command(ctx, k.bin, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+k.kubeconfig)
	cmd.Dir, cmd.Stdout, cmd.Stderr = k.dir, out, k.out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("kubectl %s: %w", strings.Join(args, " "), err)
	}
	return nil
}
