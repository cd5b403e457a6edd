package grammar

import (
	"slices"
	"strings"
)

// formatTable lists the formats that are decided, as regular expressions of whole
// strings.
//
// Sources: RFC 3339 (dates, times, durations), RFC 5321 (mail, without quoted names and
// address literals), RFC 1123 (host names, of which those with two dashes in a row are
// left out, some being reserved, and which have four labels of 44 characters at most), RFC 2673 and RFC 4291 (addresses), RFC 3986 (URIs),
// RFC 4122 (UUIDs), RFC 6901 (JSON pointers). Leap seconds are left out.
var formatTable = map[string]string{
	"date":         dateRegex,
	"time":         timeRegex,
	"date-time":    dateRegex + `[Tt]` + timeRegex,
	"duration":     `P(` + days + `|(` + days + `)?T` + hours + `|[0-9]+W)`,
	"uuid":         `[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}`,
	"hostname":     hostRegex,
	"email":        "[a-zA-Z0-9!#$%&'*+/=?^_`{|}~-]{1,16}(\\.[a-zA-Z0-9!#$%&'*+/=?^_`{|}~-]{1,15}){0,3}@" + hostRegex,
	"ipv4":         v4Regex,
	"ipv6":         v6Regex(),
	"uri":          uriRegex,
	"json-pointer": `(/([^~/]|~[01])*)*`,
}

const (
	leap      = `([0-9][0-9](0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)`
	dateRegex = `([0-9]{4}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))|` + leap + `-02-29)`
	clock     = `([01][0-9]|2[0-3]):[0-5][0-9]`
	timeRegex = clock + `:[0-5][0-9](\.[0-9]{1,9})?([Zz]|[+-]` + clock + `)`
	days      = `([0-9]+D|[0-9]+M([0-9]+D)?|[0-9]+Y([0-9]+M([0-9]+D)?)?)`
	hours     = `([0-9]+S|[0-9]+M([0-9]+S)?|[0-9]+H([0-9]+M([0-9]+S)?)?)`
	label     = `[a-zA-Z0-9]{1,14}(-[a-zA-Z0-9]{1,14}){0,2}`
	hostRegex = label + `(\.` + label + `){0,3}`
	octet     = `(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])`
	v4Regex   = octet + `(\.` + octet + `){3}`
	uriText   = `([a-zA-Z0-9._~!$&'()*+,;=:-]|%[0-9a-fA-F]{2})`
	uriName   = `([a-zA-Z0-9._~!$&'()*+,;=-]|%[0-9a-fA-F]{2})`
)

// A URI: its scheme, an authority and a path from the root, or a path alone; query; fragment.
var uriRegex = `[a-zA-Z][a-zA-Z0-9+.-]*:(//(` + uriText + `*@)?(` + uriName + `*|\[` + v6Regex() + `\])(:[0-9]*)?(/(` + uriText + `|@)*)*|` +
	`/((` + uriText + `|@)+(/(` + uriText + `|@)*)*)?|(` + uriText + `|@)+(/(` + uriText + `|@)*)*)?` +
	`(\?(` + uriText + `|[@/?])*)?(#(` + uriText + `|[@/?])*)?`

// v6Regex spells the addresses of RFC 4291 by the number of groups in front of ::.
func v6Regex() string {
	const h = `[0-9a-fA-F]{1,4}`
	last := `(` + h + `:` + h + `|` + v4Regex + `)`
	out := []string{`(` + h + `:){6}` + last, `::(` + h + `:){5}` + last}
	for front := range 8 { // groups in front, front of them; at most 7 in all
		lead := ""
		if front > 0 {
			lead = h + `(:` + h + `){` + string(rune('0'+front-1)) + `}`
		}
		rest := 7 - front
		out = append(out, lead+`::`)
		if rest >= 1 {
			out = append(out, lead+`::`+h+`(:`+h+`){0,`+string(rune('0'+rest-1))+`}`)
		}
		if rest >= 2 {
			out = append(out, lead+`::(`+h+`:){0,`+string(rune('0'+rest-2))+`}`+v4Regex)
		}
	}
	return `(` + strings.Join(out, `|`) + `)`
}

// formatDFA returns the strings of a format, as spelled between quotes.
func formatDFA(v value, p string) (*dfa, error) {
	name, ok := v.(string)
	if !ok {
		return nil, wrong(p, "the name of a format should stand here")
	}
	f, ok := formatTable[name]
	if !ok {
		var known []string
		for n := range formatTable {
			known = append(known, n)
		}
		slices.Sort(known)
		return nil, refused(p, "the format %q, which is none of %s", name, strings.Join(known, ", "))
	}
	d, err := regexDFA(f, false, spelling)
	return d, placed(err, p)
}
