package chart

import (
	"fmt"
	"math"
	"strings"
)

// Theme is the CSS of the colours that charts are drawn with, light and dark, for a page that has charts.
func Theme() string {
	return ":root{" + css(light) + "}\n@media (prefers-color-scheme:dark){:root{" + css(dark) + "}}\n" + tipCSS
}

// tipCSS shows what is told of the stretch under the pointer.
const tipCSS = `.tip>g{visibility:hidden;pointer-events:none}.tip:hover>g{visibility:visible}`

// of is the value of a colour of Theme.
func of(color string) string { return "var(--" + color + ")" }

// css are the colours of a theme as variables, in a fixed order: the same chart is the same bytes.
func css(theme map[string]rgb) string {
	var b strings.Builder
	for _, name := range names() {
		c := theme[name]
		fmt.Fprintf(&b, "--%s:#%02x%02x%02x;", name, c[0], c[1], c[2])
	}
	return b.String()
}

// SVG writes a chart of a size as an element for a page that has Theme.
func SVG(c Chart, w, h float64) string { return svg(c, w, h, "") }

// File writes a chart of a size as a file that stands alone and has the colours that its reader prefers.
func File(c Chart, w, h float64) string {
	return `<?xml version="1.0" encoding="UTF-8"?>` + "\n" + svg(c, w, h, "<style>"+Theme()+"</style>")
}

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

// svg writes the scene of a chart: its shapes in their order, and the stretches that tell figures on top. style is what a file that
// stands alone brings, also its ground; on a page both are the page's.
func svg(c Chart, w, h float64, style string) string {
	s := c.draw(w, h)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %s %s" width="%[1]s" height="%[2]s" role="img" aria-label="%[3]s" font-family="system-ui,-apple-system,'Segoe UI',sans-serif">`,
		px(s.w), px(s.h), escape(c.title()))
	b.WriteString(style)
	if style != "" {
		fmt.Fprintf(&b, `<rect width="%s" height="%s" style="fill:%s"/>`, px(s.w), px(s.h), of("bg"))
	}
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
		dash := ""
		if x.dash {
			dash = ` stroke-dasharray="6 4"`
		}
		fmt.Fprintf(b, `<polyline points="%s" fill="none" stroke-width="%s" stroke-linejoin="round" stroke-linecap="round"%s style="stroke:%s"/>`, x.list(), px(x.width), dash, of(x.color))
	default:
		fmt.Fprintf(b, `<polygon points="%s" fill-opacity="%.2f" style="fill:%s"/>`, x.list(), x.alpha, of(x.color))
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
	x, y := t.x1+6, t.y0
	if x+width > s.w-2 {
		x = max(2, min(t.x0-6-width, s.w-2-width))
	}
	if math.IsNaN(t.at) { // a bar: over it the tip would hide what it tells of
		x, y = max(2, (s.w-width)/2), t.y1
	}
	y = max(2, min(y, s.h-height-2))
	fmt.Fprintf(b, `<g class="tip"><rect x="%s" y="%s" width="%s" height="%s" fill-opacity="0"/><g>`, px(t.x0), px(t.y0), px(t.x1-t.x0), px(t.y1-t.y0))
	if !math.IsNaN(t.at) {
		fmt.Fprintf(b, `<path d="M%s %sV%s" style="stroke:%s"/>`, px(t.at), px(t.y0), px(t.y1), of("muted"))
	}
	fmt.Fprintf(b, `<rect x="%s" y="%s" width="%s" height="%s" rx="4" style="fill:%s;stroke:%s"/>`, px(x), px(y), px(width), px(height), of("bg"), of("muted"))
	fmt.Fprintf(b, `<text x="%s" y="%s" font-size="%s" style="fill:%s">%s</text>`, px(x+pad), px(y+lead), px(size), of("muted"), escape(shorten(t.head, size, width-2*pad)))
	for i, r := range t.rows {
		at := y + lead*float64(i+2)
		fmt.Fprintf(b, `<rect x="%s" y="%s" width="9" height="9" style="fill:%s"/>`, px(x+pad), px(at-9), of(r.color))
		fmt.Fprintf(b, `<text x="%s" y="%s" font-size="%s" style="fill:%s">%s</text>`, px(x+pad+15), px(at), px(size), of("fg"), escape(shorten(r.text, size, width-2*pad-15)))
	}
	b.WriteString("</g></g>")
}
