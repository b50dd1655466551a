package shard

import (
	"fmt"
	"strconv"
	"strings"
)

// UnmarshalText parses Count and Share: "count:3", "share:0.1", or both with a comma; "": all keys.
func (a *Admission) UnmarshalText(text []byte) error {
	out := Admission{FilterBytes: a.FilterBytes}
	for _, part := range strings.Split(string(text), ",") {
		if len(text) == 0 {
			break
		}
		if err := out.set(part); err != nil {
			return fmt.Errorf("%q: %w", part, err)
		}
	}
	if err := out.Validate(); err != nil {
		return err
	}
	*a = out
	return nil
}

func (a *Admission) set(part string) (err error) {
	name, value, _ := strings.Cut(part, ":")
	switch {
	case name == "count" && a.Count == 0:
		if a.Count, err = strconv.Atoi(value); err != nil || a.Count < 2 || a.Count > mostCount {
			return fmt.Errorf("want a number of pulls from 2 to %d: at their first pull all keys come", mostCount)
		}
	case name == "share" && a.Share == 0:
		if a.Share, err = strconv.ParseFloat(value, 64); err != nil || !(a.Share > 0 && a.Share < 1) {
			return fmt.Errorf("want a number between 0 and 1")
		}
	default:
		return fmt.Errorf("want count:N or share:X, each once at most")
	}
	return nil
}

// MarshalText formats Count and Share for UnmarshalText.
func (a Admission) MarshalText() ([]byte, error) {
	var parts []string
	if a.Count > 1 {
		parts = append(parts, fmt.Sprintf("count:%d", a.Count))
	}
	if a.share() < 1 {
		parts = append(parts, fmt.Sprintf("share:%v", a.Share))
	}
	return []byte(strings.Join(parts, ",")), nil
}
