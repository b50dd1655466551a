package table

// Writer writes a table row by row, in order. A Writer belongs to one goroutine.
type Writer interface {
	// Append writes a row with a text for each field; the caller can reuse the slice. Text that is
	// not a number of the field's type is an error.
	Append(row []string) error
	// Close writes the remaining rows. The underlying writer stays open.
	Close() error
}

// Field is a column of a written table.
type Field struct {
	Name string
	Type Type
}

// Type is the type of a field's texts.
type Type uint8

// Types of fields.
const (
	Text    Type = iota // unchanged, except U+FFFD for invalid UTF-8
	Integer             // 64 bits
	Float               // 64 bits
)
