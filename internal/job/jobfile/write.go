package jobfile

import (
	"bytes"
	"fmt"
	"io"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/ringo-ml/ringo/internal/setting"
)

// Write writes a job file from which Read returns the same paths and texts. Groups are in the order
// of their first settings. A duplicate path, or a path of both a setting and a group, is an error.
func Write(to io.Writer, given ...setting.Assignment) error {
	root := &yaml.Node{Kind: yaml.MappingNode}
	groups := map[string]*yaml.Node{"": root}
	seen := map[string]bool{}
	for _, a := range given {
		parts := strings.Split(string(a.Path), ".")
		if seen[string(a.Path)] || groups[string(a.Path)] != nil || a.Path == "" {
			return fmt.Errorf("jobfile: %q is given twice, or is a group", a.Path)
		}
		seen[string(a.Path)] = true
		at := root
		for i := range parts[:len(parts)-1] {
			name := strings.Join(parts[:i+1], ".")
			if seen[name] {
				return fmt.Errorf("jobfile: %q is a setting, and a group of %q", name, a.Path)
			}
			if groups[name] == nil {
				groups[name] = &yaml.Node{Kind: yaml.MappingNode}
				at.Content = append(at.Content, scalar(parts[i]), groups[name])
			}
			at = groups[name]
		}
		at.Content = append(at.Content, scalar(parts[len(parts)-1]), scalar(a.Text))
	}
	if len(root.Content) == 0 {
		return nil
	}
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(root); err != nil {
		return fmt.Errorf("jobfile: %w", err)
	}
	_, err := to.Write(b.Bytes())
	return err
}

// plainText matches text without characters that have a meaning in YAML or allow a line break.
var plainText = regexp.MustCompile(`^[A-Za-z0-9_./+-][A-Za-z0-9_./+,@%=:-]*$`)

// scalar returns a node for a text, unquoted if YAML cannot misread the text.
func scalar(text string) *yaml.Node {
	n := &yaml.Node{Kind: yaml.ScalarNode, Value: text, Style: yaml.DoubleQuotedStyle}
	var probe yaml.Node
	if plainText.MatchString(text) && yaml.Unmarshal([]byte(text), &probe) == nil && len(probe.Content) == 1 {
		if c := probe.Content[0]; c.Kind == yaml.ScalarNode && c.Value == text && c.Tag != "!!null" {
			n.Style, n.Tag = 0, c.Tag
		}
	}
	return n
}
