// Command protogen generates Go code from protobuf files without protoc: it
// compiles them itself and hands the result to protoc's plugins, so that the
// same module versions give the same bytes on every machine.
//
//	protogen DIR PLUGIN... -- FILE...
//
// DIR is the root that FILEs and their imports are found under, and where what
// the plugins make is written. The plugins are told paths=source_relative.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/linker"
	"github.com/bufbuild/protocompile/protoutil"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "protogen:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	split := slices.Index(args, "--")
	if split < 2 || split == len(args)-1 {
		return errors.New("usage: protogen DIR PLUGIN... -- FILE...")
	}
	dir, plugins, files := args[0], args[1:split], args[split+1:]
	slices.Sort(files)
	request, err := compile(ctx, dir, files)
	if err != nil {
		return err
	}
	for _, plugin := range plugins {
		if err := generate(ctx, dir, plugin, request); err != nil {
			return fmt.Errorf("generate with %q: %w", filepath.Base(plugin), err)
		}
	}
	return nil
}

// compile makes the request that protoc would make: the files with all that they
// import, each after its imports.
func compile(ctx context.Context, dir string, files []string) ([]byte, error) {
	compiler := protocompile.Compiler{
		Resolver:       protocompile.WithStandardImports(&protocompile.SourceResolver{ImportPaths: []string{dir}}),
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	compiled, err := compiler.Compile(ctx, files...)
	if err != nil {
		return nil, fmt.Errorf("compile: %w", err)
	}
	c := closure{seen: map[string]bool{}}
	for _, file := range compiled {
		c.add(file)
	}
	request, err := proto.MarshalOptions{Deterministic: true}.Marshal(&pluginpb.CodeGeneratorRequest{
		FileToGenerate: files,
		Parameter:      proto.String("paths=source_relative"),
		ProtoFile:      c.files,
	})
	if err != nil {
		return nil, fmt.Errorf("encode request: %w", err)
	}
	return request, nil
}

// closure collects files, imports first.
type closure struct {
	seen  map[string]bool
	files []*descriptorpb.FileDescriptorProto
}

func (c *closure) add(file protoreflect.FileDescriptor) {
	if c.seen[file.Path()] {
		return
	}
	c.seen[file.Path()] = true
	for i := range file.Imports().Len() {
		c.add(file.Imports().Get(i).FileDescriptor)
	}
	if result, ok := file.(linker.Result); ok {
		c.files = append(c.files, result.FileDescriptorProto())
		return
	}
	c.files = append(c.files, protoutil.ProtoFromFileDescriptor(file))
}

func generate(ctx context.Context, dir, plugin string, request []byte) error {
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, plugin)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(request), &out, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("run: %w", err)
	}
	var response pluginpb.CodeGeneratorResponse
	if err := proto.Unmarshal(out.Bytes(), &response); err != nil {
		return fmt.Errorf("decode answer: %w", err)
	}
	if response.Error != nil {
		return errors.New(response.GetError())
	}
	for _, file := range response.GetFile() {
		if err := os.WriteFile(filepath.Join(dir, filepath.FromSlash(file.GetName())), []byte(file.GetContent()), 0o644); err != nil {
			return fmt.Errorf("write %q: %w", file.GetName(), err)
		}
	}
	return nil
}
