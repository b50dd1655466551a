package data

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/ringo-ml/ringo/internal/data/images"
)

// imageParts has the arguments of openParts, to open the images again without bad images.
type imageParts struct {
	pictures [2][]images.Picture
	labels   [2][]int32
	threads  int
	open     func(pictures [2][]images.Picture, labels [2][]int32) (train, eval Source, err error)
}

// badImage is an error of one image, sent to all ranks.
type badImage struct {
	Part    int    `json:"part"`
	Image   int    `json:"image"`
	Problem string `json:"problem"`
}

// Verify decodes all images of a set with Config.SkipBad and excludes bad images, so that all ranks
// have the same samples. Each of size ranks decodes a share, and gather exchanges the results; nil
// means a single rank. With train false only evaluation images are decoded. One bad image more than
// Config.SkipBad is an error. For other kinds of sets Open makes this check.
//
// Cost: one decoding of each image, divided among the threads of all ranks.
func (s *Dataset) Verify(train bool, rank, size int, gather func(own []byte) ([][]byte, error)) error {
	images := s.images
	if images == nil {
		return nil
	}
	all := [][]byte{nil}
	first := 0
	if !train && len(images.pictures[1]) > 0 {
		first = 1
	}
	own, err := json.Marshal(images.faults(first, rank, size, s.skips.Max+1))
	if all[0] = own; err == nil && gather != nil {
		all, err = gather(own)
	}
	if err != nil {
		return fmt.Errorf("comparing bad images: %w", err)
	}
	bad := [2]map[int]string{{}, {}}
	for from, text := range all {
		var faults []badImage
		if err := json.Unmarshal(text, &faults); text != nil && err != nil {
			return fmt.Errorf("comparing bad images: rank %d: %w", from, err)
		}
		for _, f := range faults {
			bad[f.Part&1][f.Image] = f.Problem
		}
	}
	if err := s.exclude(bad); err != nil {
		return err
	}
	s.images, s.skips.Checked = nil, true
	return nil
}

// exclude reopens the set without bad images.
func (s *Dataset) exclude(bad [2]map[int]string) (err error) {
	if len(bad[0])+len(bad[1]) == 0 {
		return nil
	}
	var pictures [2][]images.Picture
	var labels [2][]int32
	for part, all := range s.images.pictures {
		for i := range all {
			if problem, ok := bad[part][i]; ok {
				if err := s.skips.Skip(errors.New(problem)); err != nil {
					return err
				}
				continue
			}
			pictures[part] = append(pictures[part], all[i])
			labels[part] = append(labels[part], s.images.labels[part][i])
		}
		if len(all) > 0 && len(pictures[part]) == 0 {
			return fmt.Errorf("%s: every one of %d images is bad, the first: %s", s.Name, len(all), bad[part][0])
		}
	}
	s.Train, s.Eval, err = s.images.open(pictures, labels)
	return err
}

// faults decodes every size-th image, from image rank on, of each part from part first on, and
// returns at most `most` errors.
func (p *imageParts) faults(first, rank, size, most int) (bad []badImage) {
	for part := first; part < len(p.pictures); part++ {
		pictures := p.pictures[part]
		problems := make([]string, (len(pictures)-rank+size-1)/size)
		var all sync.WaitGroup
		for t := range p.threads {
			all.Go(func() {
				for i := t; i < len(problems); i += p.threads {
					if err := pictures[rank+i*size].Check(); err != nil {
						problems[i] = err.Error()
					}
				}
			})
		}
		all.Wait()
		for i, problem := range problems {
			if problem != "" && len(bad) < most {
				bad = append(bad, badImage{part, rank + i*size, problem})
			}
		}
	}
	return bad
}
