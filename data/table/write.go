package table

// Writer takes a table row by row. The order of rows is kept. It belongs to one goroutine.
type Writer interface {
	// Append writes a row, a text for each field, which may be changed afterwards. Texts that are
	// no numbers of their field's type are errors.
	Append(row []string) error
	// Close writes what is left. It does not close what the table is written to.
	Close() error
}

// Field is a column of a table that is written.
type Field struct {
	Name string
	Type Type
}

// Type is what a field's texts are.
type Type uint8

// The types of fields.
const (
	Text    Type = iota // as it is; of bytes that are no UTF-8, U+FFFD
	Integer             // of 64 bits
	Float               // of 64 bits
)
