package table

import (
	"slices"
	"testing"
)

// The encoder of a run that starts from a checkpoint keeps the order, means, deviations and kinds
// of the columns there.
func TestStudyKeepsPreviousColumns(t *testing.T) {
	previous, err := InferEncoder(text(t, "b,a,city,note,goal\n1,10,x,u,3.5\n2,20,y,v,4.5\n3,30,x,w,9.25\n"),
		Options{Target: "goal", Schema: Schema{"city": Category, "note": Ignore, "goal": Target}}, none, strict)
	if err != nil {
		t.Fatal(err)
	}
	const later = "a,goal,new,city,note,b\n100,7.5,1,x,u,7\n200,8.5,2,z,v,8\n300,8.75,3,x,w,9\n"
	e, err := InferEncoder(text(t, later), Options{Previous: previous}, none, strict)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range e.Columns {
		names = append(names, c.Name)
		i := slices.IndexFunc(previous.Columns, func(p Column) bool { return p.Name == c.Name })
		if i < 0 {
			continue
		}
		if p := previous.Columns[i]; c.Kind != p.Kind || c.Mean != p.Mean || c.Deviation != p.Deviation {
			t.Errorf("%s is %s with mean %v and deviation %v, want %s, %v, %v", c.Name, c.Kind, c.Mean, c.Deviation, p.Kind, p.Mean, p.Deviation)
		}
	}
	if want := []string{"b", "a", "city", "note", "goal", "new"}; !slices.Equal(names, want) {
		t.Errorf("columns %v, want %v", names, want)
	}
	if city := e.Columns[2]; !slices.Equal(city.Words, []string{"x", "z"}) {
		t.Errorf("city has %v, want the words of these rows", city.Words)
	}
	s := Samples{}
	if err := e.Encode(text(t, later), true, 1<<20, func(int64) *Samples { return &s }, strict); err != nil {
		t.Fatal(err)
	}
	b := previous.Columns[0]
	if want := float32((7 - b.Mean) / b.Deviation); s.Values[0] != want {
		t.Errorf("the first value is %v, want %v of b by the old mean", s.Values[0], want)
	}
}

// TestChoiceWinsOverPrevious: a choice of the user wins over the encoder of the checkpoint.
func TestChoiceWinsOverPrevious(t *testing.T) {
	previous, err := InferEncoder(text(t, "a,b,goal\n1,5,3.5\n2,6,4.5\n3,9,9.25\n"), Options{Target: "goal", Schema: Schema{"goal": Target}}, none, strict)
	if err != nil {
		t.Fatal(err)
	}
	const later = "goal,b,a\n7.5,5,1\n8.5,6,1\n9.5,7,2\n"
	for _, c := range []struct {
		choice Options
		want   string
	}{
		{Options{}, "a=number,b=number,goal=label"},
		{Options{Schema: Schema{"goal": Target}}, "a=number,b=number,goal=target"},
		{Options{Schema: Schema{"goal": Target, "a": Category}}, "a=category,b=number,goal=target"},
		{Options{Target: "b", Schema: Schema{"b": Target}}, "a=number,b=target,goal=number"},
		{Options{Schema: Schema{"a": Label}}, "a=label,b=number,goal=number"},
	} {
		c.choice.Previous = previous
		e, err := InferEncoder(text(t, later), c.choice, none, strict)
		if err != nil {
			t.Errorf("%+v: %v", c.choice, err)
			continue
		}
		if got := e.Schema().String(); got != c.want && c.choice.Schema != nil || c.choice.Schema == nil && e.Columns[e.goal].Name != "goal" {
			t.Errorf("%+v: %s, want %s", c.choice, got, c.want)
		}
	}
}
