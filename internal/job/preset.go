package job

import (
	"embed"
	"slices"
	"strings"
)

//go:embed presets/*.yaml
var presets embed.FS

// Presets are the names of the job files that come with ringo, in order.
func Presets() (names []string) {
	entries, _ := presets.ReadDir("presets") // it is there
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".yaml"))
	}
	slices.Sort(names)
	return names
}

// Preset is the text of one of them, whose first line is a comment that says what it is.
func Preset(name string) (text string, known bool) {
	b, err := presets.ReadFile("presets/" + name + ".yaml")
	return string(b), err == nil
}
