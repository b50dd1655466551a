package bytesview_test

import (
	"go/build"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestBigEndianPlatformsAreRejected: exactly the big-endian platforms of Go compile the file
// that does not compile.
func TestBigEndianPlatformsAreRejected(t *testing.T) {
	list, err := exec.Command("go", "tool", "dist", "list").Output()
	if err != nil {
		t.Fatal(err)
	}
	for platform := range strings.FieldsSeq(string(list)) {
		system, arch, _ := strings.Cut(platform, "/")
		c := build.Default
		c.GOOS, c.GOARCH = system, arch
		p, err := c.ImportDir(".", 0)
		if err != nil {
			t.Fatal(err)
		}
		big := slices.Contains([]string{"mips", "mips64", "ppc64", "s390x"}, arch)
		if slices.Contains(p.GoFiles, "bigendian.go") != big {
			t.Errorf("%s: files %v", platform, p.GoFiles)
		}
	}
}
