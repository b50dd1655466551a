package tune

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/ringo-ml/ringo/collective"
	"github.com/ringo-ml/ringo/internal/bucket"
	"github.com/ringo-ml/ringo/internal/dirlock"
	"github.com/ringo-ml/ringo/internal/heter/costmodel"
	"github.com/ringo-ml/ringo/internal/pathname"
)

// Format and Version are the header of a profile's file. A reader refuses other versions: misread
// costs are worse than no costs.
const (
	Format  = "ringo-profile"
	Version = 6
)

// maxFile bounds a file's size.
const maxFile = 64 << 20

// Profile is a job's measurements, enough for a later run to make the same choices with the same
// bits. Parts may be nil, but not all of them.
type Profile struct {
	// Planner is the source of plans and strategies.
	Planner *bucket.Profile `json:"planner,omitempty"`
	// Collectives are a group's rules for algorithms.
	Collectives *collective.Profile `json:"collectives,omitempty"`
	// Heter holds the costs of a model's stages for heter-trainers, for predictions of ringo plan.
	Heter *costmodel.Costs `json:"heter,omitempty"`
}

// Validate reports all errors of all parts.
func (p Profile) Validate() error {
	var errs []error
	if p.Planner == nil && p.Collectives == nil && p.Heter == nil {
		errs = append(errs, errors.New("neither a planner's part nor rules of collectives nor costs of stages"))
	}
	if p.Planner != nil {
		errs = append(errs, p.Planner.Validate())
	}
	if p.Collectives != nil {
		if err := p.Collectives.Validate(); err != nil {
			errs = append(errs, fmt.Errorf("collectives: %w", err))
		}
	}
	if p.Heter != nil {
		errs = append(errs, p.Heter.Validate())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("tune: bad profile: %w", err)
	}
	return nil
}

type file struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
	Profile
}

// Encode returns the profile's file, one JSON object, or every error of p.
func Encode(p Profile) ([]byte, error) {
	if err := p.Validate(); err != nil {
		return nil, err
	}
	out, err := json.MarshalIndent(file{Format, Version, p}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("tune: encoding a profile: %w", err)
	}
	return append(out, '\n'), nil
}

// Decode is the inverse of Encode. The profile is valid, or the error reports all errors.
func Decode(data []byte) (Profile, error) {
	if len(data) > maxFile {
		return Profile{}, fmt.Errorf("tune: a profile of more than %d bytes", maxFile)
	}
	var head struct {
		Format  string `json:"format"`
		Version int    `json:"version"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return Profile{}, fmt.Errorf("tune: not a profile: %w", err)
	}
	if head.Format != Format || head.Version != Version {
		return Profile{}, fmt.Errorf("tune: format %q, version %d: want %q, version %d; measure again and save that", head.Format, head.Version, Format, Version)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	var f file
	if err := d.Decode(&f); err != nil {
		return Profile{}, fmt.Errorf("tune: bad profile: %w", err)
	}
	return f.Profile, f.Validate()
}

// Save writes the profile's file, whole or not at all.
func Save(path string, p Profile) error {
	data, err := Encode(p)
	if err != nil {
		return err
	}
	err = dirlock.WriteFile(path, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
	if err != nil {
		return fmt.Errorf("tune: saving a profile: %w", err)
	}
	return nil
}

// Load reads a profile's file.
func Load(path string) (Profile, error) {
	file, err := pathname.Open(path)
	if err != nil {
		return Profile{}, fmt.Errorf("tune: loading a profile: %w", err)
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err != nil {
		return Profile{}, fmt.Errorf("tune: loading a profile: %w", err)
	}
	p, err := Decode(data)
	if err != nil {
		return Profile{}, fmt.Errorf("%s: %w", path, err)
	}
	return p, nil
}
