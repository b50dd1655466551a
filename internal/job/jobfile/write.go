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

// Write writes assignments so that Read returns the same texts of the same paths: groups in the order in which they first
// come. A path that is given twice, or is a group of another's, is an error.
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

// plainText is what needs no quotes: neither a character with a meaning in YAML nor one at which a line could be broken.
var plainText = regexp.MustCompile(`^[A-Za-z0-9_./+-][A-Za-z0-9_./+,@%=:-]*$`)

// scalar is a text as a node: plain where nobody could take it for something else.
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
