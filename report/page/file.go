package page

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/tech-renaissance/trbench/report"
	"github.com/tech-renaissance/trbench/results"
)

// generator marks a page of ours: only such a file may be replaced by one.
const generator = `<meta name="generator" content="trbench">`

// headBytes is how far into a file the mark stands at most.
const headBytes = 512

// WriteFile makes the page of some records at path, in one move. It replaces a
// page that it made earlier, or an empty file, and nothing else: a word too few
// on a command line must not cost a record. A link is followed.
func WriteFile(path string, records []report.Named, extra Extra) error {
	var b bytes.Buffer
	if err := Write(&b, records, extra); err != nil {
		return err
	}
	if err := CheckFile(path); err != nil {
		return fmt.Errorf("write page %s: %w", path, err)
	}
	path = results.FollowLinks(path)
	return report.WriteFile(path, func(w io.Writer) error {
		_, err := w.Write(b.Bytes())
		return err
	})
}

// CheckFile says why [WriteFile] would not replace what is at path.
func CheckFile(path string) error { return replaceable(results.FollowLinks(path)) }

var (
	errNoFile = errors.New("is no file")
	errNoPage = errors.New("is there and no page of this program, so it is not replaced")
)

func replaceable(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return errNoFile
	case info.Size() == 0:
		return nil
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	head := make([]byte, headBytes)
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	if !bytes.Contains(head[:n], []byte(generator)) {
		return errNoPage
	}
	return nil
}
