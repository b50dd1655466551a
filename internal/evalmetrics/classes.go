package evalmetrics

import (
	"cmp"
	"math"
	"slices"
	"strconv"
)

// ClassReport is the table of a classifier.
type ClassReport struct {
	Samples  int64   `json:"samples"`
	Accuracy float64 `json:"accuracy"`
	// Majority is the most frequent class of the samples, and MajorityAccuracy the accuracy of a
	// model that always predicts this class.
	Majority         string  `json:"majority_class"`
	MajorityAccuracy float64 `json:"majority_accuracy"`
	// Top5 is the share of samples with the label among the five most probable classes, for more
	// than 5 classes.
	Top5 *float64 `json:"top5_accuracy,omitempty"`
	// Macro is the mean over the classes with samples or predictions, Weighted the mean by samples.
	// MacroAUC is the mean over the classes with an AUC.
	Macro    Average `json:"macro"`
	Weighted Average `json:"weighted"`
	MacroAUC Value   `json:"macro_auc"`
	// Unpredicted is the number of classes with samples and without predictions: their precision is
	// undefined, and counts 0 in the averages. Unlabelled is the number of classes without samples.
	Unpredicted int `json:"classes_without_predictions"`
	Unlabelled  int `json:"classes_without_samples"`
	// Classes has a row for each class, by number.
	Classes []Class `json:"per_class"`
	// Confusion lists label, prediction and number of samples of each pair with samples, by numbers
	// of classes.
	Confusion [][3]int64 `json:"confusion"`
}

// Average is a mean of the classes' metrics.
type Average struct {
	Precision Value `json:"precision"`
	Recall    Value `json:"recall"`
	F1        Value `json:"f1"`
}

// Class is a row of a ClassReport.
type Class struct {
	Name string `json:"class"`
	// Support, Predicted and Correct count samples by label, by prediction and by both.
	Support   int64 `json:"support"`
	Predicted int64 `json:"predicted"`
	Correct   int64 `json:"correct"`
	// Precision is undefined without predictions, Recall without samples, F1 without both.
	Precision Value `json:"precision"`
	Recall    Value `json:"recall"`
	F1        Value `json:"f1"`
	// AUC is of the class against the other classes, undefined if either side has no samples.
	AUC Value `json:"auc"`
}

// inTop5 is a bit in a sample's word, next to label and prediction: the label is among the first
// five classes.
const inTop5 = 1 << 63

// addClasses counts a pass of a classifier: logits [n, classes], or [n, 1] for two classes. If the
// outputs give another number of correct predictions than the loss, they are no class scores.
func (c *Counter) addClasses(p Pass) {
	n := len(p.Labels)
	out := p.Outputs
	if n == 0 {
		return
	}
	width := len(out) / n
	if len(out) != n*c.plan.Classes && !(len(out) == n && c.plan.Classes == 2) {
		c.foreign++
		return
	}
	correct := 0
	for i, label := range p.Labels {
		if label < 0 || int(label) >= c.plan.Classes {
			c.foreign++
			return
		}
		row := out[i*width:][:width]
		predicted, rank := place(row, label)
		word := uint64(label)<<32 | uint64(predicted)
		if rank < 5 {
			word |= inTop5
		}
		if predicted == label {
			correct++
		}
		if c.words[0] = append(c.words[0], word); len(c.words) > 1 {
			c.addScores(row, label, c.words[1:])
		}
	}
	if correct != p.Correct {
		c.foreign++
	}
}

// place returns the class with the largest logit, the first among equals, and the number of classes
// before the label. A single logit is of class 1 against class 0.
func place(logits []float32, label int32) (predicted int32, rank int) {
	if len(logits) == 1 {
		if logits[0] > 0 {
			predicted = 1
		}
		return predicted, 0
	}
	for k, x := range logits {
		if x > logits[predicted] {
			predicted = int32(k)
		}
		if own := logits[label]; x > own || x == own && k < int(label) {
			rank++
		}
	}
	return predicted, rank
}

// addScores appends a word for each class: the probability, as predictions have it, and whether the
// sample has the class.
func (c *Counter) addScores(logits []float32, label int32, to [][]uint64) {
	if len(logits) == 1 {
		p := 1 / (1 + math.Exp(-float64(logits[0])))
		c.chances = append(c.chances[:0], 1-p, p)
	} else {
		c.chances = Softmax(c.chances[:0], logits, 1)
	}
	for k, p := range c.chances {
		to[k] = append(to[k], Scored(float32(p), int(label) == k))
	}
}

// classReport computes the table from the words of at least one sample, and the scores by class.
func (p Plan) classReport(samples []uint64, scores [][]uint64) *ClassReport {
	r := &ClassReport{Samples: int64(len(samples)), Classes: make([]Class, p.Classes)}
	top5, correct := r.count(samples)
	r.Accuracy = float64(correct) / float64(r.Samples)
	if p.Classes > 5 {
		v := float64(top5) / float64(r.Samples)
		r.Top5 = &v
	}
	for k := range r.Classes {
		c := &r.Classes[k]
		c.Name = p.name(k)
		c.Precision, c.Recall = ratio(c.Correct, c.Predicted), ratio(c.Correct, c.Support)
		c.F1 = ratio(2*c.Correct, c.Support+c.Predicted)
		if len(scores) > 0 {
			c.AUC.Value, c.AUC.Known = AUC(scores[k])
		}
	}
	most := slices.MaxFunc(r.Classes, func(a, b Class) int { return cmp.Compare(a.Support, b.Support) })
	r.Majority, r.MajorityAccuracy = most.Name, float64(most.Support)/float64(r.Samples)
	r.average()
	return r
}

// count fills the counts of samples, and returns the samples with the label among the first five
// classes and as the first. It sorts words.
func (r *ClassReport) count(words []uint64) (top5, correct int64) {
	for i, w := range words {
		top5 += int64(w >> 63)
		words[i] = w &^ inTop5
	}
	slices.Sort(words)
	for lo := 0; lo < len(words); {
		hi := lo
		for ; hi < len(words) && words[hi] == words[lo]; hi++ {
		}
		n, label, predicted := int64(hi-lo), int64(words[lo]>>32), int64(words[lo]&math.MaxUint32)
		r.Classes[label].Support += n
		r.Classes[predicted].Predicted += n
		if label == predicted {
			r.Classes[label].Correct += n
			correct += n
		}
		r.Confusion = append(r.Confusion, [3]int64{label, predicted, n})
		lo = hi
	}
	return top5, correct
}

// average computes the averages over the classes.
func (r *ClassReport) average() {
	var macro, weighted [3]float64
	classes, areas, area := 0, 0, 0.0
	for _, c := range r.Classes {
		if c.Support == 0 {
			r.Unlabelled++
		} else if c.Predicted == 0 {
			r.Unpredicted++
		}
		if c.AUC.Known {
			areas, area = areas+1, area+c.AUC.Value
		}
		if c.Support+c.Predicted == 0 {
			continue
		}
		classes++
		for i, v := range [3]Value{c.Precision, c.Recall, c.F1} {
			macro[i] += v.or(0)
			weighted[i] += v.or(0) * float64(c.Support)
		}
	}
	mean := func(x [3]float64, n float64) Average {
		return Average{known(x[0] / n), known(x[1] / n), known(x[2] / n)}
	}
	r.Macro, r.Weighted = mean(macro, float64(classes)), mean(weighted, float64(r.Samples))
	if areas > 0 {
		r.MacroAUC = known(area / float64(areas))
	}
}

// Worst returns the class with samples that has the smallest F1, the more frequent among equals.
func (r *ClassReport) Worst() Class {
	return slices.MinFunc(slices.DeleteFunc(slices.Clone(r.Classes), func(c Class) bool { return c.Support == 0 }), worse)
}

// worse orders classes by F1, undefined last, then by samples, most first.
func worse(a, b Class) int {
	return cmp.Or(cmp.Compare(a.F1.or(2), b.F1.or(2)), cmp.Compare(b.Support, a.Support))
}

// name returns a class's name, or its number without one.
func (p Plan) name(k int) string {
	if k < len(p.Names) {
		return p.Names[k]
	}
	return strconv.Itoa(k)
}
