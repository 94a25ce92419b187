package images

import (
	"path/filepath"
	"slices"
)

// References under which the images are served. Manifests and charts use them
// as they would use the published images.
const (
	// ManagerRef is Sluice's manager: controllers and webhooks.
	ManagerRef = "images.sluice.dev/sluice-manager:dev"
	// WorkerRef is the worker of the sources that Sluice ships.
	WorkerRef = "images.sluice.dev/sluice-worker:dev"
	// PluginRef is the plugin of examples/plugin-go.
	PluginRef = "images.sluice.dev/plugin-go:dev"
	// PauseRef is the sandbox image of the embedded nodes.
	PauseRef = "cluster.sluice.dev/pause:1"
	// BusyboxRef is what `image: busybox:latest` in a manifest means.
	BusyboxRef = "docker.io/library/busybox:latest"
)

// Names of the images, as Options.Only and the command line know them.
const (
	Manager = "sluice-manager"
	Worker  = "sluice-worker"
	Plugin  = "plugin-go"
	Pause   = "pause"
	Busybox = "busybox"
)

// refs are the references by name.
var refs = map[string]string{Manager: ManagerRef, Worker: WorkerRef, Plugin: PluginRef, Pause: PauseRef, Busybox: BusyboxRef}

// Names returns the name of every image in the order in which Build makes them.
func Names() []string { return []string{Pause, Busybox, Manager, Worker, Plugin} }

// nonRoot is the user that Sluice's own images run as: no name, no shell, and
// the same number that the rest of the container world uses for it.
const nonRoot = "65532:65532"

// recipe says what an image consists of. It is complete: two equal recipes over
// equal files are the same image.
type recipe struct {
	name       string
	ref        string
	user       string
	env        []string
	workingDir string
	entrypoint []string
	cmd        []string
	layers     [][]entry
}

// goProgram is a command of this repository that an image is made from.
type goProgram struct {
	// module is the folder of the Go module, relative to the repository.
	module string
	// pkg is the command's package, relative to the module.
	pkg string
}

// programs are the commands that have to be compiled, by image.
var programs = map[string]goProgram{
	Manager: {module: ".", pkg: "./cmd/sluice-manager"},
	Worker:  {module: ".", pkg: "./cmd/sluice-worker"},
	Plugin:  {module: ".", pkg: "./examples/plugin-go"},
	Pause:   {module: "cluster", pkg: "./cmd/pause"},
}

// programRecipe is the image of one of our commands, compiled to binary.
func programRecipe(name, binary string, base []entry) recipe {
	target := "/" + filepath.Base(binary)
	return recipe{
		name:       name,
		ref:        refs[name],
		user:       nonRoot,
		workingDir: "/",
		env:        []string{"PATH=/", "SSL_CERT_FILE=" + certificatesPath},
		entrypoint: []string{target},
		layers:     [][]entry{base, {fileFrom(target, 0o755, binary)}},
	}
}

// pauseRecipe is the sandbox image: one file and nothing else.
func pauseRecipe(binary string) recipe {
	return recipe{
		name:       Pause,
		ref:        PauseRef,
		user:       nonRoot,
		workingDir: "/",
		entrypoint: []string{"/pause"},
		layers:     [][]entry{{fileFrom("/pause", 0o755, binary)}},
	}
}

// busyboxRecipe is the image that the examples and the tutorial use: busybox
// with a link for each applet, root by default, a writable /tmp.
func busyboxRecipe(binary string, applets []string) recipe {
	tools := []entry{
		dir("/bin", 0o755),
		fileFrom("/bin/busybox", 0o755, binary),
		dir("/usr", 0o755),
		dir("/usr/bin", 0o755),
		symlink("/usr/bin/env", "/bin/env"),
	}
	for _, a := range applets {
		tools = append(tools, symlink("/bin/"+a, "busybox"))
	}
	return recipe{
		name:       Busybox,
		ref:        BusyboxRef,
		env:        []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
		cmd:        []string{"sh"},
		workingDir: "/",
		layers:     [][]entry{slices.Concat(baseEntries(), []entry{dir("/root", 0o700)}), tools},
	}
}
