package main

import (
	"fmt"
	"strings"
)

// tipCSS shows the texts of the stretch under the pointer.
const tipCSS = `.tip>g{visibility:hidden;pointer-events:none}.tip:hover>g{visibility:visible}`

// themeFile is the style of the pages' charts, whose first two lines are the colours, light and
// dark.
const themeFile = "cmd/ringo/internal/plot/assets/chart.css"

// themeOf returns the colours of a style as CSS.
func themeOf(style string) (string, error) {
	lines := strings.SplitN(style, "\n", 3)
	if len(lines) < 3 || !strings.HasPrefix(lines[0], ":root{--bg:") || !strings.HasPrefix(lines[1], "@media (prefers-color-scheme:dark){:root{--bg:") {
		return "", fmt.Errorf("%s: the first two lines are not the colours of the charts", themeFile)
	}
	return lines[0] + "\n" + lines[1] + "\n" + tipCSS, nil
}

// of returns the value of a colour of the theme.
func of(color string) string { return "var(--" + color + ")" }

// entities are what text may not have in an element or in an attribute between double quotes.
var entities = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;")

// escape is text as an element of XML has it; what XML cannot have becomes U+FFFD.
func escape(text string) string {
	return entities.Replace(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0xfffe || r == 0xffff || r == 0x7f {
			return '\ufffd'
		}
		return r
	}, strings.ToValidUTF8(text, "\ufffd")))
}

// svg writes a chart of a size as a file that stands alone, in the colours that its reader prefers.
func svg(c chart, w, h float64, theme string) string {
	s := c.draw(w, h)
	var b strings.Builder
	fmt.Fprintf(&b, `<?xml version="1.0" encoding="UTF-8"?>`+"\n"+`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %s %s" width="%[1]s" height="%[2]s" role="img" aria-label="%[3]s" font-family="system-ui,-apple-system,'Segoe UI',sans-serif">`,
		px(s.w), px(s.h), escape(c.title()))
	fmt.Fprintf(&b, `<style>%s</style><rect width="%s" height="%s" style="fill:%s"/>`, theme, px(s.w), px(s.h), of("bg"))
	for _, x := range s.shapes {
		x.svg(&b)
	}
	for _, t := range s.tips {
		t.svg(&b, s)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// px writes a length with a decimal.
func px(v float64) string { return trim(fmt.Sprintf("%.1f", v)) }

// svg writes one shape. Colours are style and not attributes: variables have no effect in attributes.
func (x shape) svg(b *strings.Builder) {
	switch {
	case x.text != "":
		fmt.Fprintf(b, `<text x="%s" y="%s" font-size="%s" text-anchor="%s" style="fill:%s">%s</text>`,
			px(x.points[0][0]), px(x.points[0][1]), px(x.size), x.anchor, of(x.color), escape(x.text))
	case x.width > 0:
		fmt.Fprintf(b, `<polyline points="%s" fill="none" stroke-width="%s" stroke-linejoin="round" stroke-linecap="round" style="stroke:%s"/>`, x.list(), px(x.width), of(x.color))
	default:
		fmt.Fprintf(b, `<polygon points="%s" fill-opacity="1.00" style="fill:%s"/>`, x.list(), of(x.color))
	}
}

// list are the points as SVG has them.
func (x shape) list() string {
	parts := make([]string, len(x.points))
	for i, p := range x.points {
		parts[i] = px(p[0]) + "," + px(p[1])
	}
	return strings.Join(parts, " ")
}

// svg writes a stretch that shows its figures while the pointer is in it.
func (t tip) svg(b *strings.Builder, s *scene) {
	const lead, pad = 17.0, 8.0
	size := small
	width := wide(t.head, size)
	for _, r := range t.rows {
		width = max(width, wide(r.text, size)+16)
	}
	width = min(width+2*pad, s.w-4)
	height := lead*float64(len(t.rows)+1) + pad
	x, y := max(2, (s.w-width)/2), t.y1 // above, it would hide the stretch
	y = max(2, min(y, s.h-height-2))
	fmt.Fprintf(b, `<g class="tip"><rect x="%s" y="%s" width="%s" height="%s" fill-opacity="0"/><g>`, px(t.x0), px(t.y0), px(t.x1-t.x0), px(t.y1-t.y0))
	fmt.Fprintf(b, `<rect x="%s" y="%s" width="%s" height="%s" rx="4" style="fill:%s;stroke:%s"/>`, px(x), px(y), px(width), px(height), of("bg"), of("muted"))
	fmt.Fprintf(b, `<text x="%s" y="%s" font-size="%s" style="fill:%s">%s</text>`, px(x+pad), px(y+lead), px(size), of("muted"), escape(shorten(t.head, size, width-2*pad)))
	for i, r := range t.rows {
		at := y + lead*float64(i+2)
		fmt.Fprintf(b, `<rect x="%s" y="%s" width="9" height="9" style="fill:%s"/>`, px(x+pad), px(at-9), of(r.color))
		fmt.Fprintf(b, `<text x="%s" y="%s" font-size="%s" style="fill:%s">%s</text>`, px(x+pad+15), px(at), px(size), of("fg"), escape(shorten(r.text, size, width-2*pad-15)))
	}
	b.WriteString("</g></g>")
}
