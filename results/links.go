package results

import (
	"os"
	"path/filepath"
)

// maxLinks is how many links behind each other are followed, as Linux does.
const maxLinks = 40

// FollowLinks is the file that path stands for, through links, also where the
// last one leads to a file that is not there yet: a file is written under a
// temporary name and renamed, and a rename would replace the link. A path that
// leads nowhere, such as links in a ring, is returned as it is.
func FollowLinks(path string) string {
	at := path
	for range maxLinks {
		if resolved, err := filepath.EvalSymlinks(at); err == nil {
			return resolved
		}
		target, err := os.Readlink(at)
		if err != nil {
			return at
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(filepath.Dir(at), target)
		}
		at = target
	}
	return path
}
