package server

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/internal/server/shard"
)

// admitting is the text form of the rules of admission: the default rule, then ;NAME=RULE for each
// table with another rule.
type admitting struct{ c *Config }

// UnmarshalText does not change the configuration after an error.
func (a admitting) UnmarshalText(text []byte) error {
	all, rest, more := strings.Cut(string(text), ";")
	if strings.Contains(all, "=") { // rules of single tables only
		all, rest, more = "", string(text), true
	}
	admission := shard.Admission{FilterBytes: a.c.Admission.FilterBytes}
	if err := admission.UnmarshalText([]byte(all)); err != nil {
		return err
	}
	var byName map[string]shard.Admission
	for more {
		var one string
		one, rest, more = strings.Cut(rest, ";")
		name, rule, found := strings.Cut(one, "=")
		if _, again := byName[name]; !found || name == "" || again {
			return fmt.Errorf("%q: want TABLE=RULE behind the rule of all, each table once", one)
		}
		admit := shard.Admission{FilterBytes: admission.FilterBytes}
		if err := admit.UnmarshalText([]byte(rule)); err != nil {
			return fmt.Errorf("table %s: %w", name, err)
		}
		if byName == nil {
			byName = map[string]shard.Admission{}
		}
		byName[name] = admit
	}
	a.c.Admission, a.c.TableAdmission = admission, byName
	return nil
}

// MarshalText formats the admissions for UnmarshalText.
func (a admitting) MarshalText() ([]byte, error) {
	out, err := a.c.Admission.MarshalText()
	for _, name := range slices.Sorted(maps.Keys(a.c.TableAdmission)) {
		text, bad := a.c.TableAdmission[name].MarshalText()
		if err == nil {
			err = bad
		}
		if len(out) > 0 {
			out = append(out, ';')
		}
		out = append(append(append(out, name...), '='), text...)
	}
	return out, err
}
