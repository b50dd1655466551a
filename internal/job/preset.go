package job

import (
	"embed"
	"slices"
	"strings"
)

//go:embed presets/*.yaml
var presets embed.FS

// Presets returns the sorted names of the job files that ringo contains.
func Presets() (names []string) {
	entries, _ := presets.ReadDir("presets") // the folder is embedded
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".yaml"))
	}
	slices.Sort(names)
	return names
}

// Preset returns the text of a preset. Its first line is a comment with a description.
func Preset(name string) (text string, known bool) {
	b, err := presets.ReadFile("presets/" + name + ".yaml")
	return string(b), err == nil
}
