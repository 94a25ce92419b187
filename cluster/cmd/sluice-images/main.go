// Command sluice-images builds the container images of Sluice and of its
// embedded cluster, without a container engine and without root.
//
//	sluice-images [-root .] [-dir .build/images] [-archives] [image…]
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/sluice-dev/sluice/cluster/images"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "sluice-images:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("sluice-images", flag.ExitOnError)
	root := flags.String("root", ".", "folder of the repository")
	dir := flags.String("dir", "", "folder of the image layout (default: .build/images in the repository)")
	busybox := flags.String("busybox", os.Getenv("BUSYBOX"), "statically linked busybox (default: the machine's, else Debian's package)")
	archives := flags.Bool("archives", false, "also write one archive per image, for `ctr images import` or `docker load`")
	flags.Usage = func() {
		fmt.Fprintf(flags.Output(), "Usage: sluice-images [flags] [image…]\nImages: %s\n", strings.Join(images.Names(), ", "))
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *dir == "" {
		*dir = filepath.Join(*root, ".build", "images")
	}
	options := images.Options{Root: *root, Dir: *dir, Only: flags.Args(), Busybox: *busybox, Report: report}
	if err := images.Build(ctx, options); err != nil {
		return err
	}
	if !*archives {
		return nil
	}
	return images.Save(ctx, options)
}

// report prints what became of one image.
func report(r images.Result) {
	state := "built"
	if r.Unchanged {
		state = "unchanged"
	}
	fmt.Printf("%-15s %-9s %s@%s\n", r.Name, state, r.Ref, r.Digest)
}
