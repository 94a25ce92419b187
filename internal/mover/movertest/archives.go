package movertest

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/sluice-dev/sluice/api/worker"
)

// An Archive is an archive and what has to become of it.
type Archive struct {
	// Why says what is of interest.
	Why string
	// Data is the archive.
	Data []byte
	// Fails is the reason that it is refused with; empty for none.
	Fails string
	// Want is what Tree finds afterwards. nil: of no interest.
	Want map[string]string
	// Lax is true for archives that are extracted only when what is unsupported
	// may be left out; Fails and Want are then those of leaving out.
	Lax bool
}

// ModTime is the time of the entries of archives.
var ModTime = time.Date(2021, 8, 30, 12, 0, 0, 0, time.UTC)

// Tar returns a tar archive of the headers, each with its name repeated to its
// size as content. Files that say nothing of it have mode 0644.
func Tar(t testing.TB, headers ...tar.Header) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, h := range headers {
		if h.Typeflag != tar.TypeXGlobalHeader {
			if h.Mode == 0 {
				h.Mode = 0o644
			}
			h.ModTime = ModTime
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Size > 0 {
			if _, err := w.Write([]byte(Content(h.Name, h.Size))); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// Content is what Tar and Zip write into the file name.
func Content(name string, size int64) string {
	return strings.Repeat(name, int(size)/len(name)+1)[:size]
}

// ZipEntry is an entry of Zip.
type ZipEntry struct {
	Name string
	Mode fs.FileMode
	// Body of the entry: the target of a link.
	Body string
}

// Zip returns a zip archive.
func Zip(t testing.TB, entries ...ZipEntry) []byte {
	t.Helper()
	var out bytes.Buffer
	w := zip.NewWriter(&out)
	for _, e := range entries {
		h := &zip.FileHeader{Name: e.Name, Method: zip.Deflate, Modified: ModTime}
		if e.Mode != 0 {
			h.SetMode(e.Mode)
		}
		f, err := w.CreateHeader(h)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write([]byte(e.Body)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func file(name string) tar.Header {
	return tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(name))}
}

func link(name, target string) tar.Header {
	return tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target}
}

func hard(name, target string) tar.Header {
	return tar.Header{Typeflag: tar.TypeLink, Name: name, Linkname: target}
}

// HostileTars returns tar archives that try to do harm, and odd ones that do
// none, by name.
func HostileTars(t testing.TB) map[string]Archive {
	t.Helper()
	const refused = worker.ReasonUnsupportedFormat
	long := strings.Repeat("n", 300)
	deep := strings.Repeat("d/", 2500) + "f"
	good := Tar(t, file("a"), file("b"))
	return map[string]Archive{
		"ParentName":      {Why: "a name goes up", Data: Tar(t, file("../escape")), Fails: refused, Want: map[string]string{}},
		"ParentInside":    {Why: "a name goes down and up", Data: Tar(t, file("a/../../escape")), Fails: refused, Want: map[string]string{}},
		"AbsoluteName":    {Why: "a name is absolute", Data: Tar(t, file("/etc/escape")), Fails: refused, Want: map[string]string{}},
		"AbsoluteDir":     {Why: "a directory is absolute", Data: Tar(t, tar.Header{Typeflag: tar.TypeDir, Name: "/escape/"}), Fails: refused},
		"LinkThenThrough": {Why: "a link out, then a file through it", Data: Tar(t, link("l", "../neighbour"), file("l/secret")), Fails: refused, Want: map[string]string{}},
		"LinkThenThroughLax": {
			Why: "the same when the link may be left out: the file lands inside", Data: Tar(t, link("l", "../neighbour"), file("l/secret")),
			Lax: true, Want: map[string]string{"l": "dir", "l/secret": "l/secret"},
		},
		"AbsoluteLink":  {Why: "a link is absolute", Data: Tar(t, link("l", "/etc/passwd")), Fails: refused, Want: map[string]string{}},
		"LinkChain":     {Why: "two links that are harmless alone", Data: Tar(t, link("a", "."), link("a/b", ".."), file("a/b/escape")), Fails: refused},
		"LinkReplaced":  {Why: "a directory becomes a link", Data: Tar(t, tar.Header{Typeflag: tar.TypeDir, Name: "d/"}, link("d", "../neighbour"), file("d/secret")), Fails: refused},
		"LinkOverwrite": {Why: "a file replaces a link and not its target", Data: Tar(t, file("t"), link("l", "t"), file("l")), Want: map[string]string{"t": "t", "l": "l"}},
		"LinkSwitched": {
			Why:  "a link is put anew: files go where it leads now",
			Data: Tar(t, file("one/x"), file("two/x"), link("l", "one"), file("l/f"), link("l", "two"), file("l/g")),
			Want: map[string]string{"one": "dir", "one/x": "one/x", "one/f": "l/f", "two": "dir", "two/x": "two/x", "two/g": "l/g", "l": "-> two"},
		},
		"HardOutside":    {Why: "a hard link goes up", Data: Tar(t, hard("h", "../neighbour/secret")), Fails: refused, Want: map[string]string{}},
		"HardAbsolute":   {Why: "a hard link is absolute", Data: Tar(t, hard("h", "/etc/hostname")), Fails: refused, Want: map[string]string{}},
		"HardMissing":    {Why: "a hard link to what comes later", Data: Tar(t, hard("h", "f"), file("f")), Fails: refused, Want: map[string]string{}},
		"HardToLink":     {Why: "a hard link to a link, which is then written through", Data: Tar(t, file("f"), link("l", "f"), hard("h", "l")), Fails: refused},
		"HardInside":     {Why: "a hard link inside is kept", Data: Tar(t, file("f"), hard("d/h", "f"), hard("f", "f")), Want: map[string]string{"f": "f", "d": "dir", "d/h": "f"}},
		"Device":         {Why: "a device", Data: Tar(t, tar.Header{Typeflag: tar.TypeBlock, Name: "sda", Devmajor: 8}), Fails: refused, Want: map[string]string{}},
		"Fifo":           {Why: "a pipe would block its reader", Data: Tar(t, tar.Header{Typeflag: tar.TypeFifo, Name: "p"}), Fails: refused, Want: map[string]string{}},
		"DeviceLeftOut":  {Why: "a device is left out if so asked", Data: Tar(t, tar.Header{Typeflag: tar.TypeChar, Name: "null"}, file("f")), Lax: true, Want: map[string]string{"f": "f"}},
		"Duplicate":      {Why: "the later of two wins, as in an archive that was appended to", Data: Tar(t, tar.Header{Typeflag: tar.TypeReg, Name: "f", Size: 9}, file("f")), Want: map[string]string{"f": "f"}},
		"CaseTrick":      {Why: "names that differ in case are two", Data: Tar(t, link("Dir", "x"), file("dir/f"), file("x/g")), Want: map[string]string{"Dir": "-> x", "dir": "dir", "dir/f": "dir/f", "x": "dir", "x/g": "x/g"}},
		"FileBelowFile":  {Why: "a file is no directory", Data: Tar(t, file("f"), file("f/g")), Fails: refused, Want: map[string]string{"f": "f"}},
		"LongName":       {Why: "a part longer than file systems allow", Data: Tar(t, file(long)), Fails: refused, Want: map[string]string{}},
		"LongPath":       {Why: "a path longer than the kernel allows", Data: Tar(t, file(deep)), Fails: refused, Want: map[string]string{}},
		"ControlInName":  {Why: "odd names stay what they are", Data: Tar(t, file("a\n\x1b[31m\u202eb")), Want: map[string]string{"a\n\x1b[31m\u202eb": "a\n\x1b[31m\u202eb"}},
		"RootEntry":      {Why: "the archive's own root is no entry of the volume", Data: Tar(t, tar.Header{Typeflag: tar.TypeDir, Name: "./", Mode: 0o700}, file("./f")), Want: map[string]string{"f": "./f"}},
		"GlobalHeader":   {Why: "git writes its commit into a header", Data: Tar(t, tar.Header{Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{"comment": "c"}}, file("f")), Want: map[string]string{"f": "f"}},
		"Truncated":      {Why: "the archive is cut within a file", Data: good[:600], Fails: worker.ReasonTruncated},
		"CutBetween":     {Why: "the archive is cut between two files", Data: good[:1024], Fails: worker.ReasonTruncated, Want: map[string]string{"a": "a"}},
		"CutInPadding":   {Why: "the archive is cut within the padding of the last file", Data: good[:1024+600], Fails: worker.ReasonTruncated},
		"Padding":        {Why: "tapes pad with zeros", Data: append(bytes.Clone(good), make([]byte, 8192)...), Want: map[string]string{"a": "a", "b": "b"}},
		"Garbage":        {Why: "something follows the end", Data: append(bytes.Clone(good), "garbage"...), Fails: refused},
		"SecondArchive":  {Why: "a second archive follows the end", Data: append(bytes.Clone(good), good...), Fails: refused},
		"BadChecksum":    {Why: "a header is damaged", Data: append(bytes.Replace(bytes.Clone(good), []byte("0000644"), []byte("0000777"), 1), good...), Fails: refused},
		"SizeLie":        {Why: "a file says that it is larger than the volume", Data: lyingSize(t), Fails: worker.ReasonVolumeTooSmall, Want: map[string]string{}},
		"SparseLie":      {Why: "a sparse file says that it is larger than the volume", Data: sparse(t, 1<<60, 1), Fails: worker.ReasonVolumeTooSmall, Want: map[string]string{}},
		"NoEntry":        {Why: "an archive of nothing", Data: Tar(t), Fails: worker.ReasonSourceEmpty, Want: map[string]string{}},
		"NoByte":         {Why: "no archive at all", Fails: worker.ReasonSourceEmpty, Want: map[string]string{}},
		"WebPage":        {Why: "an error page", Data: []byte("<html>" + strings.Repeat("not found ", 100)), Fails: refused, Want: map[string]string{}},
		"ShortRubbish":   {Why: "a few bytes", Data: []byte("no"), Fails: refused, Want: map[string]string{}},
		"DamagedGzip":    {Why: "compression that ends in rubbish", Data: append([]byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3}, bytes.Repeat([]byte{0xff}, 600)...), Fails: refused, Want: map[string]string{}},
		"GreedyXz":       {Why: "xz that asks for 4 GiB of memory", Data: append([]byte("\xfd7zXZ\x00\x00\x04\xe6\xd6\xb4\x46\x02\x00\x21\x01\x28\x00\x00\x00"), make([]byte, 600)...), Fails: refused, Want: map[string]string{}},
		"GreedyZstd":     {Why: "zstd that asks for 2 GiB of memory", Data: append([]byte{0x28, 0xb5, 0x2f, 0xfd, 0x00, 21 << 3}, make([]byte, 600)...), Fails: refused, Want: map[string]string{}},
		"ImpossibleType": {Why: "an entry of a type that nobody knows", Data: Tar(t, tar.Header{Typeflag: 'Z', Name: "z"}), Fails: refused, Want: map[string]string{}},
	}
}

// lyingSize is a header that announces eight exabytes.
func lyingSize(t testing.TB) []byte {
	t.Helper()
	var out bytes.Buffer
	h := &tar.Header{Typeflag: tar.TypeReg, Name: "huge", Size: 1<<62 + 1, Mode: 0o644, Format: tar.FormatGNU}
	if err := tar.NewWriter(&out).WriteHeader(h); err != nil {
		t.Fatal(err)
	}
	return append(out.Bytes(), make([]byte, 4096)...)
}

// sparse is a GNU sparse file, in the format of pax headers 0.1, that is size
// bytes long and holds data bytes at its end.
func sparse(t testing.TB, size, data int64) []byte {
	t.Helper()
	return SparseTar(t, "s", size, data)
}

// HostileZips returns zip archives that try to do harm, and odd ones, by name.
func HostileZips(t testing.TB) map[string]Archive {
	t.Helper()
	const refused = worker.ReasonUnsupportedFormat
	good := Zip(t, ZipEntry{Name: "a", Body: "A"}, ZipEntry{Name: "d/", Mode: fs.ModeDir | 0o755}, ZipEntry{Name: "d/b", Body: "B", Mode: 0o600})
	encrypted := bytes.Clone(good)
	for _, at := range []int{6, bytes.Index(good, []byte("PK\x01\x02")) + 8} {
		encrypted[at] |= 1
	}
	lie := bytes.Clone(Zip(t, ZipEntry{Name: "bomb", Body: strings.Repeat("\x00", 1<<20)}))
	if at := bytes.Index(lie, []byte("PK\x01\x02")); at > 0 {
		copy(lie[at+24:], []byte{10, 0, 0, 0}) // the uncompressed size
	}
	damaged := bytes.Clone(Zip(t, ZipEntry{Name: "f", Body: "some text that is stored"}))
	damaged[40] ^= 0xff
	return map[string]Archive{
		"ParentName":   {Why: "a name goes up", Data: Zip(t, ZipEntry{Name: "../escape", Body: "x"}), Fails: refused, Want: map[string]string{}},
		"AbsoluteName": {Why: "a name is absolute", Data: Zip(t, ZipEntry{Name: "/escape", Body: "x"}), Fails: refused, Want: map[string]string{}},
		"Backslashes":  {Why: "backslashes are letters here", Data: Zip(t, ZipEntry{Name: `..\escape`, Body: "x"}), Want: map[string]string{`..\escape`: "x"}},
		"LinkOut":      {Why: "a link out of the volume", Data: Zip(t, ZipEntry{Name: "l", Mode: fs.ModeSymlink | 0o777, Body: "../neighbour"}), Fails: refused, Want: map[string]string{}},
		"LinkInside":   {Why: "a link inside is kept", Data: Zip(t, ZipEntry{Name: "l", Mode: fs.ModeSymlink | 0o777, Body: "a"}, ZipEntry{Name: "a", Body: "A"}), Want: map[string]string{"l": "-> a", "a": "A"}},
		"LinkThrough":  {Why: "a link out, then a file through it", Data: Zip(t, ZipEntry{Name: "l", Mode: fs.ModeSymlink | 0o777, Body: "../neighbour"}, ZipEntry{Name: "l/secret", Body: "x"}), Lax: true, Want: map[string]string{"l": "dir", "l/secret": "x"}},
		"Pipe":         {Why: "a pipe", Data: Zip(t, ZipEntry{Name: "p", Mode: fs.ModeNamedPipe | 0o644}), Fails: refused, Want: map[string]string{}},
		"Twice":        {Why: "readers disagree on which of two counts", Data: Zip(t, ZipEntry{Name: "f", Body: "1"}, ZipEntry{Name: "f", Body: "2"}), Fails: refused},
		"Encrypted":    {Why: "a password nobody gave", Data: encrypted, Fails: refused},
		"SizeLie":      {Why: "more comes out than announced", Data: lie, Fails: refused, Want: map[string]string{}},
		"Damaged":      {Why: "the data is not what its sum says", Data: damaged, Fails: refused, Want: map[string]string{}},
		"Truncated":    {Why: "the directory is missing", Data: good[:len(good)-30], Fails: refused, Want: map[string]string{}},
		"Empty":        {Why: "an archive of nothing", Data: Zip(t), Fails: worker.ReasonSourceEmpty, Want: map[string]string{}},
		"Good":         {Why: "files and directories arrive", Data: good, Want: map[string]string{"a": "A", "d": "dir", "d/b": "B"}},
	}
}
