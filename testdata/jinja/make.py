# Writes cases.json: small templates, one fact each, and what transformers' renderer makes of them, text or error.
# usage: make.py > cases.json   (transformers 5.23.0, jinja2 3.1.6, Python 3.11)
import datetime
import json
import re
import sys

from transformers.utils import chat_template_utils as ctu


class Stopped(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls(2026, 3, 7, 14, 5, 9)


ctu.datetime = Stopped

VARS = {
    "n": 7, "f": 1.0, "z": 0, "t": True, "nil": None, "s": "Hello wörld", "e": "", "l": [3, 1, 2], "el": [],
    "d": {"items": 1, "b": [1, {"c": "x"}], "A": 2, "get": "g"}, "ed": {}, "q": "it's \"q\"", "nl": "a\n b\n\nc\n",
    "us": [{"name": "Bob", "age": 30, "x": {"y": 1}}, {"name": "al", "age": 25}, {"name": "Cy", "age": 30, "x": {"y": 2}}],
    "html": "<a href='x'>&\"</a>", "big": 10**30, "uni": "ß İ é 日本 😀", "tab": "\ta\\b\x01\x7f\u2028",
}

# Each line is a template. One of expressions alone is cut into one template for each, for an error ends a template.
CASES = r"""
{{ nil }}|{{ f }}|{{ t }}|{{ n }}|{{ big }}|{{ s }}
{{ undefinedname }}|{{ d.nothing }}|{{ d.nothing.more }}
{{ undefinedname is defined }}{{ undefinedname is undefined }}{{ undefinedname is iterable }}{{ undefinedname is sequence }}{{ undefinedname is string }}{{ undefinedname is callable }}
{{ undefinedname | default('x') }}{{ e | default('x') }}{{ e | default('x', true) }}{{ nil | default('x') }}{{ nil | default('x', boolean=true) }}
{{ undefinedname + 1 }}
{{ 'a' + undefinedname }}
{{ 'a' ~ undefinedname ~ 'b' }}
{{ undefinedname['x'] }}
{{ undefinedname() }}
{{ undefinedname == undefinedother }}{{ undefinedname == none }}{{ undefinedname != 1 }}
{{ undefinedname < 1 }}
{{ 'a' in undefinedname }}
{{ undefinedname | length }}{{ undefinedname | list }}{{ undefinedname | upper }}{{ undefinedname | join(',') }}
{{ undefinedname | int }}
{{ undefinedname | tojson }}
{{ undefinedname | first is defined }}{{ undefinedname | last is defined }}
{% for x in undefinedname %}x{% else %}none{% endfor %}
{{ -undefinedname }}
{{ [undefinedname] }}{{ {'a': undefinedname} }}
{{ d.items() | list }}
{{ d['items'] }}{{ d.A }}{{ d['A'] }}{{ d.get('A') }}{{ d['get'] }}{{ d.get('zz') }}{{ d.get('zz', 5) }}
{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}
{% for k, v in d | items %}{{ k }}={{ v }};{% endfor %}
{% for k in d %}{{ k }}{% endfor %}{{ d.keys() }}{{ d.values() }}{{ ed.items() }}
{{ d.pop('A') }}
{{ d.update({'x': 1}) }}
{{ l.append(4) }}
{{ l.append is defined }}{{ d.pop is defined }}{{ l.count(1) }}{{ l.index(2) }}
{{ l.index(9) }}
{{ d.keys() | length }}{{ d.values() | list }}{{ 'A' in d.keys() }}{{ 1 in d.values() }}
{{ s.__class__ }}|{{ s.__class__ is defined }}|{{ ''.__class__.__mro__ }}
{{ s.nothing }}|{{ n.nothing }}|{{ n.real }}{{ f.is_integer() }}{{ n.bit_length() }}
{{ 'a\nb\tc\\d\'e\"f\x41\u00e9\U0001F600\101\q' }}
{{ 'it\'s' | list }}{{ [q] }}{{ ["it's"] }}{{ ['a"b'] }}{{ ['a\\b\n\r\t\x01é\u200b\xad'] }}{{ [tab] }}
{{ 'a' 'b' "c" }}
{{ 1_000 }} {{ 0x1f }} {{ 0b101 }} {{ 0o17 }} {{ 1e3 }} {{ 1.5e-7 }} {{ 1e20 }} {{ 1e16 }} {{ 123456789012345.6 }} {{ 1e22 }} {{ 0.1 }} {{ 1E5 }} {{ 00 }}
{{ 1.0 }} {{ 100.0 }} {{ 0.00001 }} {{ 0.0001 }} {{ -0.0 }} {{ 1/3 }} {{ 2.5e300*1e300 }} {{ -1e400 }}
{{ 10**12 }} {{ 10**30 }} {{ 2**0.5 }} {{ 2**-1 }} {{ 2**3**2 }} {{ -2**2 }} {{ (-2)**3 }} {{ 0**0 }}
{{ 9223372036854775807 + 1 }} {{ -9223372036854775808 - 1 }} {{ 9223372036854775807 * 2 }} {{ 3037000500 * 3037000500 }} {{ big // 7 }} {{ big % 7 }} {{ big / 3 }} {{ -big // 7 }}
{{ 7 // 2 }} {{ -7 // 2 }} {{ 7 // -2 }} {{ 7 % 3 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 7.5 // 2 }} {{ -7.5 % 2 }} {{ 7 / 2 }} {{ 6 / 2 }} {{ 1e308 * 10 // 1 is defined }}
{{ 1 / 0 }}
{{ 1 // 0 }}
{{ 1 % 0 }}
{{ 1.0 / 0 }}
{{ 0 ** -1 }}
{{ 10.0 ** 400 }}
{{ true + 1 }} {{ true * 3 }} {{ -true }} {{ +true }} {{ true == 1 }} {{ 1 == 1.0 }} {{ true < 2 }}
{{ '1' + 1 }}
{{ 1 + '1' }}
{{ [1] + (2,) }}
{{ none + 1 }}
{{ [1] + [2] }} {{ (1,) + (2, 3) }} {{ [0] * 3 }} {{ 3 * [0, 1] }} {{ 'ab' * 2 }} {{ 'ab' * -1 }} {{ 2 * 'x' }} {{ (1,) * 2 }}
{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 1 == 1 != 2 }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }} {{ (1,) <= (1, 0) }}
{{ 1 < 'a' }}
{{ none < 1 }}
{{ [1] < (1,) }}
{{ 1 in [1, 2] }} {{ 'a' in 'abc' }} {{ 'z' not in 'abc' }} {{ not 1 in [2] }} {{ 'A' in d }} {{ 2 not in (1, 2) }} {{ 5 in range(10) }} {{ 1.0 in [1] }}
{{ 1 in 'abc' }}
{{ 1 in 5 }}
{{ [] in d }}
{{ 1 and 0 or 'x' }} {{ none or [] }} {{ '' and 1 }} {{ not '' }} {{ not not 5 }} {{ 1 or undefinedname.x.y }}
{{ 'y' if t else 'n' }}{{ 'y' if z else 'n' }}{{ 'y' if z }}|{{ ('y' if z) is defined }}{{ 1 if 0 else 2 if 0 else 3 }}
{{ 'y' if undefinedname.x else 'n' }}
{{ (1, 2) }} {{ (1,) }} {{ () }} {{ [] }} {{ {} }} {{ [1, 'a', none, 1.5, true, [2], {'k': 'v'}] }} {{ 1, 2 }} {{ {'a': 1, 'b': {'c': [1]}} }} {{ {1: 2, none: 3, true: 4} }}
{{ {1: 'a', 1.0: 'b', true: 'c'} }} {{ {'a': 1, 'a': 2} }} {{ {(1, 2): 3}[(1, 2)] }} {{ {(1, 2): 3}[1, 2] }}
{{ {[]: 1} }}
{{ {'a': {'b': 1}} }}{{ {'a': {'b': 1}}['a'] }}
{{ l[0] }}{{ l[-1] }}{{ l[5] }}{{ l.0 }}{{ l['0'] }}{{ l[true] }}{{ s[0] }}{{ s[-1] }}{{ s[7] }}{{ s[99] }}
{{ l[5].x }}
{{ l[1:] }}{{ l[:-1] }}{{ l[::-1] }}{{ l[::2] }}{{ l[-2:] }}{{ l[5:] }}{{ l[:1:-1] }}{{ l[100:0:-1] }}{{ s[1:4] }}{{ s[::-1] }}{{ s[-5:-1] }}{{ s[:99] }}{{ s[4:2] }}{{ (1, 2, 3)[1:] }}{{ s[-99:3] }}{{ s[::3] }}{{ s[none:2] }}
{{ l[::0] }}
{{ l['a':] }}
{{ n[0] }}|{{ nil[0] }}|{{ nil.x }}
{{ n[1:] }}
{{ uni[2] }}{{ uni[-1] }}{{ uni[::-1] }}{{ uni | length }}{{ uni[5:9] }}
{{ range(3) }}{{ range(1, 7, 2) | list }}{{ range(5, 0, -2) | list }}{{ range(0) | list }}{{ range(10)[2] }}{{ range(10)[2:4] }}{{ range(3) | length }}{{ range(3) == range(0, 3, 1) }}{{ range(10)[-1] }}{{ range(10)[::-3] | list }}
{{ range(100001) }}
{{ range(1, 2, 0) }}
{{ range('a') }}
{{ range(1.0) }}
{{ s | upper }}{{ s | lower }}{{ s | capitalize }}{{ s | title }}{{ 'a-b c(d [e' | title }}{{ "it's o'neil" | title }}{{ s.title() }}{{ "it's o'neil".title() }}{{ 'hELLO wORLD'.swapcase() }}{{ uni.upper() }}{{ 'ΑΣ ΑΣ'.lower() }}{{ 'ßeta ǆ'.capitalize() }}{{ 'Straße'.casefold() }}
{{ '  x ' | trim }}|{{ 'xxaxx' | trim('x') }}|{{ '  x '.strip() }}|{{ '  x '.lstrip() }}|{{ '  x '.rstrip() }}|{{ 'abcba'.strip('ab') }}|{{ '\u00a0\x1cx\u2003' | trim }}|{{ n | trim }}|{{ 'x'.strip(none) }}
{{ 'a,b,,c'.split(',') }}{{ 'a,b,c'.split(',', 1) }}{{ ' a  b c '.split() }}{{ ' a  b c '.split(none, 1) }}{{ 'a,b,c'.rsplit(',', 1) }}{{ ' a  b c '.rsplit(none, 1) }}{{ 'abc'.split('x') }}{{ ''.split() }}{{ ''.split(',') }}{{ 'a,b,c'.split(sep=',', maxsplit=1) }}{{ 'a b'.split(maxsplit=0) }}{{ 'aXXb'.split('XX')[-1] }}
{{ 'a'.split('') }}
{{ 'a'.split(1) }}
{{ 'a\nb\r\nc\x0bd\u2028e\n'.splitlines() }}{{ 'a\nb\n'.splitlines(true) }}{{ ''.splitlines() }}{{ 'a\n\nb'.splitlines(keepends=True) }}
{{ 'a=b=c'.partition('=') }}{{ 'a=b=c'.rpartition('=') }}{{ 'abc'.partition('=') }}{{ 'abc'.rpartition('=') }}
{{ ','.join(['a', 'b']) }}{{ ''.join('abc') }}{{ '-'.join(d) }}
{{ ','.join([1, 2]) }}
{{ 'aaa'.replace('a', 'b') }}{{ 'aaa'.replace('a', 'b', 2) }}{{ 'abc'.replace('', '-') }}{{ 'aaa' | replace('a', 'b') }}{{ 'aaa' | replace('a', 'b', 1) }}{{ 121 | replace(1, 3) }}{{ 'abc'.replace('', '-', 2) }}{{ 'aaa'.replace('a', 'b', 0) }}
{{ 'a'.replace('a', 1) }}
{{ s.startswith('He') }}{{ s.startswith(('x', 'H')) }}{{ s.endswith('ld') }}{{ s.startswith('l', 2) }}{{ s.endswith('l', 0, 4) }}{{ s.startswith('') }}{{ s.startswith('', 99) }}{{ s.endswith('', 99) }}
{{ s.startswith(1) }}
{{ s.startswith(['H']) }}
{{ s.find('o') }}{{ s.find('z') }}{{ s.rfind('l') }}{{ s.index('w') }}{{ s.rindex('l') }}{{ s.count('l') }}{{ s.find('o', 5) }}{{ s.find('l', -3) }}{{ s.count('l', 0, 3) }}{{ s.count('') }}{{ 'aaa'.count('aa') }}{{ s.find('r') }}
{{ s.index('z') }}
{{ 'a'.ljust(3) }}|{{ 'a'.rjust(3, '*') }}|{{ 'ab'.center(5, '*') }}|{{ 'abc'.center(6, '*') }}|{{ 'ab' | center(7) }}|{{ '-5'.zfill(4) }}|{{ 'a\tb'.expandtabs(4) }}|{{ 'abc'.removeprefix('a') }}{{ 'abc'.removesuffix('bc') }}{{ 'abc'.removesuffix('') }}
{{ 'a'.ljust(3, 'ab') }}
{{ 'ab1'.isalnum() }}{{ 'ab'.isalpha() }}{{ '12'.isdigit() }}{{ '1.2'.isdigit() }}{{ '½'.isnumeric() }}{{ '²'.isdigit() }}{{ '²'.isdecimal() }}{{ ' '.isspace() }}{{ ''.isspace() }}{{ 'AB'.isupper() }}{{ 'ab1'.islower() }}{{ 'Ab Cd'.istitle() }}{{ 'a_1'.isidentifier() }}{{ '1a'.isidentifier() }}{{ 'a'.isascii() }}{{ '\n'.isprintable() }}{{ '日本'.isalpha() }}
{{ '%s is %d' % ('x', 5) }}|{{ '%5.2f|%-6s|%06d|%x|%X|%o|%e|%g|%%' % (3.14159, 'ab', 42, 255, 255, 8, 12345.678, 0.0001) }}|{{ '%s' % 'a' }}|{{ '%(a)s-%(b)d' % {'a': 1, 'b': 2} }}|{{ '%r' % 'a' }}|{{ '%+d % d' % (5, 5) }}|{{ '%.3s' % 'abcdef' }}|{{ '%*d' % (5, 3) }}|{{ '%c%c' % (65, 'b') }}|{{ '%s' % none }}|{{ '%s' % [1] }}|{{ '%#x' % 255 }}|{{ '%g' % 1e10 }}|{{ '%g' % 100000 }}|{{ '%g' % 1000000 }}|{{ '%.0f' % 0.5 }}|{{ '%i' % 3.9 }}|{{ '%5s|%-5d|' % ('a', 3) }}|{{ '%+.1e' % 0 }}|{{ '%05s' % 'a' }}
{{ '%d' % 'x' }}
{{ '%s %s' % 'a' }}
{{ '%s' % ('a', 'b') }}
{{ 'x' % 1 }}
{{ '%(zz)s' % {} }}
{{ '%y' % 1 }}
{{ 'x' % [] }}{{ 'x' % {} }}{{ '%s, %s' | format('a', 1) }}{{ '%(a)s' | format(a=3) }}
{{ '{} {}'.format('a', 1) }}|{{ '{1} {0}'.format('a', 'b') }}|{{ '{x}'.format(x=3) }}|{{ '{:>5}|{:<5}|{:^5}|{:*^7}'.format('a', 'b', 'c', 'd') }}|{{ '{:.2f} {:5d} {:05d} {:,} {:_}'.format(3.14159, 42, 42, 1234567, 1234567) }}|{{ '{:x} {:#x} {:b} {:o} {:e} {:g} {:%}'.format(255, 255, 5, 8, 1234.5, 0.1, 0.25) }}|{{ '{0[a]} {0.b}'.format({'a': 1, 'b': 2}) }}|{{ '{{}}'.format() }}|{{ '{!r}'.format('a') }}|{{ '{:{}}'.format('a', 4) }}|{{ '{:+}'.format(5) }}|{{ '{:.3}'.format('abcdef') }}|{{ '{:,.2f}'.format(1234567.891) }}|{{ '{:s}'.format('a') }}|{{ '{}'.format(1.0) }}|{{ '{:.3}'.format(1.0) }}|{{ '{:.3}'.format(1234.5) }}|{{ '{:n}'.format(5) }}|{{ '{:010,}'.format(1234) }}|{{ '{:5}|{:5}'.format(true, none is none) }}
{{ '{}'.format() }}
{{ '{:d}'.format('a') }}
{{ '{:d}'.format(1.5) }}
{{ '{:5}'.format(none) }}
{{ '{'.format(1) }}
{{ '{} {0}'.format(1) }}
{{ '{a}'.format_map({'a': 1}) }}
{{ l | sort(el) }}
{{ undefinedname | attr('x') }}
{{ el * big }}
{{ s.splitlines('x') }}
{{ l | sort }}{{ l | sort(reverse=true) }}{{ ['b', 'A', 'c'] | sort }}{{ ['b', 'A', 'c'] | sort(case_sensitive=true) }}{{ us | sort(attribute='age') | map(attribute='name') | list }}{{ us | sort(attribute='age,name') | map(attribute='name') | list }}{{ us | sort(attribute='age', reverse=true) | map(attribute='name') | list }}{{ us | sort(attribute='name') | map(attribute='name') | join(',') }}{{ d | sort }}{{ 'cab' | sort }}
{{ [1, 'a'] | sort }}
{{ us | sort }}
{{ d | dictsort }}{{ d | dictsort(true) }}{{ {'a': 2, 'b': 1} | dictsort(by='value') }}{{ {'a': 2, 'b': 1} | dictsort(false, 'value', true) }}
{{ d | dictsort(by='x') }}
{{ ['a', 'A', 'b', 'a'] | unique | list }}{{ ['a', 'A'] | unique(case_sensitive=true) | list }}{{ us | unique(attribute='age') | map(attribute='name') | list }}{{ [1, 1.0, true] | unique | list }}
{{ l | min }}{{ l | max }}{{ ['b', 'A'] | min }}{{ ['b', 'A'] | min(case_sensitive=true) }}{{ us | max(attribute='age') }}{{ el | min is defined }}{{ l | sum }}{{ us | sum(attribute='age') }}{{ l | sum(start=10) }}{{ [0.1, 0.2] | sum }}{{ [[1], [2]] | sum(start=[]) }}
{{ ['a'] | sum }}
{{ ['a'] | sum(start='') }}
{{ us | groupby('age') | length }}{% for g in us | groupby('age') %}{{ g.grouper }}:{{ g.list | map(attribute='name') | join(',') }};{% endfor %}{% for k, v in us | groupby('x.y', default=0) %}{{ k }}={{ v | length }};{% endfor %}{{ [{'a': 'X'}, {'a': 'x'}] | groupby('a') }}{{ [{'a': 'X'}, {'a': 'x'}] | groupby('a', case_sensitive=true) }}
{{ range(7) | batch(3) | list }}{{ range(7) | batch(3, 'x') | list }}{{ range(7) | slice(3) | list }}{{ range(7) | slice(3, 'x') | list }}{{ [] | batch(2) | list }}{{ [] | slice(2) | list }}
{{ [1] | slice(0) | list }}
{{ us | map(attribute='name') | list }}{{ us | map(attribute='x.y') | list }}{{ us | map(attribute='x.y', default='d') | list }}{{ ['a', 'b'] | map('upper') | list }}{{ ['a', 1] | map('tojson') | join(', ') }}{{ [[1, 2]] | map('join', '-') | list }}{{ us | map('attr', 'name') | list }}{{ [[3, 1]] | map('first') | list }}{{ ['a b'] | map('replace', ' ', '_') | list }}{{ [[1, 2]] | map(attribute=0) | list }}
{{ us | map(attribute='x') | map(attribute='y') | list }}
{{ l | map('nofilter') | list }}
{{ l | map | list }}
{{ us | selectattr('x') | map(attribute='name') | list }}{{ us | rejectattr('x') | map(attribute='name') | list }}{{ us | selectattr('age', 'equalto', 30) | list | length }}{{ us | selectattr('age', '==', 30) | list | length }}{{ us | selectattr('age', 'gt', 26) | map(attribute='name') | list }}{{ us | rejectattr('age', 'in', [25]) | map(attribute='name') | list }}{{ us | selectattr('x', 'defined') | list | length }}{{ us | selectattr('x.y', 'eq', 2) | map(attribute='name') | list }}
{{ [0, 1, '', 'a', none] | select | list }}{{ [0, 1, '', 'a', none] | reject | list }}{{ l | select('odd') | list }}{{ l | reject('odd') | list }}{{ l | select('gt', 1) | list }}{{ ['a', 1] | select('string') | list }}{{ l | select('divisibleby', 3) | list }}
{{ l | select('notest') | list }}
{{ us | selectattr | list }}
{{ l | select('odd') | length }}
{{ (l | select('odd')) is iterable }}{% set g = l | map('string') %}{{ g | list }}{{ g | list }}{{ 'y' if g else 'n' }}
{{ (l | map('string'))[0] is defined }}
{{ l | map('string') | last }}
{{ l | map('string') | first }}{{ l | map('string') | tojson }}
{{ [l | first, l | last, el | first is defined, s | first, s | last, d | first, d | last, range(3) | last] }}
{{ l | list }}{{ s | list }}{{ d | list }}{{ (1, 2) | list }}{{ 5 | string | list }}
{{ 5 | list }}
{{ l | reverse | list }}{{ s | reverse }}{{ d | reverse | list }}{{ l | map('string') | reverse }}{{ range(3) | reverse | list }}
{{ 5 | reverse }}
{{ l | join }}{{ l | join(', ') }}{{ us | join('|', attribute='name') }}{{ [1, none, true, 1.0, 'x', [1]] | join(',') }}{{ s | join('-') }}{{ d | join(1) }}{{ ['a'] | join(d=',') }}
{{ 5 | join }}
{{ l | length }}{{ s | length }}{{ d | count }}{{ nl | length }}
{{ 5 | length }}
{{ none | length }}
{{ '42' | int }}{{ '42.9' | int }}{{ 'x' | int }}{{ 'x' | int(5) }}{{ 3.9 | int }}{{ -3.9 | int }}{{ 'ff' | int(base=16) }}{{ '0xff' | int(0, 16) }}{{ '0b11' | int(base=2) }}{{ none | int }}{{ true | int }}{{ ' 7 ' | int }}{{ '1_000' | int }}{{ [] | int(9) }}{{ '1e3' | int }}{{ '-5' | int }}{{ '' | int }}{{ '٣' | int }}{{ '99999999999999999999' | int }}{{ 'nan' | int }}{{ 'inf' | int }}
{{ 1e400 | int }}
{{ '1.5' | float }}{{ 'x' | float }}{{ 'x' | float(2.5) }}{{ 3 | float }}{{ '1e3' | float }}{{ 'inf' | float }}{{ none | float }}{{ ' 2 ' | float }}{{ 'nan' | float }}{{ '1_0.5' | float }}{{ true | float }}{{ '-.5' | float }}{{ '0x10' | float }}
{{ 3 | abs }}{{ -3 | abs }}{{ (-3) | abs }}{{ -3.5 | abs }}{{ true | abs }}
{{ 'a' | abs }}
{{ 42.55 | round }}{{ 42.55 | round(1) }}{{ 42.55 | round(1, 'floor') }}{{ 42.55 | round(1, 'ceil') }}{{ 2.5 | round }}{{ 3.5 | round }}{{ 5 | round }}{{ 1234 | round(-2) }}{{ 1250 | round(-2) }}{{ 1350.0 | round(-2) }}{{ 2.675 | round(2) }}{{ 0.5 | round }}{{ -0.5 | round }}{{ 42.55 | round | int }}{{ 7 | round(0, 'floor') }}{{ -1.5 | round(0, 'ceil') }}{{ 1.1e300 | round(2) }}
{{ 'a' | round }}
{{ 1 | round(1, 'x') }}
{{ d | tojson }}|{{ q | tojson }}|{{ html | tojson }}|{{ uni | tojson }}|{{ tab | tojson }}|{{ [1.0, 1e20, none, true, 10**20, 0.1] | tojson }}|{{ {1: 2, none: 3, true: 4, 1.5: 5} | tojson }}|{{ (1, 2) | tojson }}|{{ 'a' | tojson }}|{{ [] | tojson }}{{ {} | tojson }}
{{ d | tojson(indent=2) }}|{{ d | tojson(indent=0) }}|{{ [1, [2, []], {}] | tojson(indent=4) }}|{{ d | tojson(indent='--') }}|{{ d | tojson(separators=(',', ':')) }}|{{ d | tojson(sort_keys=true) }}|{{ uni | tojson(ensure_ascii=true) }}|{{ d | tojson(true) }}|{{ {'b': 1, 'a': 2} | tojson(indent=2, separators=(', ', ' = '), sort_keys=True) }}|{{ tab | tojson(ensure_ascii=true) }}|{{ d | tojson(indent=none) }}
{{ d.keys() | tojson }}
{{ range(3) | tojson }}
{{ {(1, 2): 3} | tojson }}
{{ {1: 1, 'a': 2} | tojson(sort_keys=true) }}
{{ 1e400 | tojson }}{{ (1e400 - 1e400) | tojson }}{{ 1e400 }}{{ -1e400 }}{{ 1e400 - 1e400 }}
{{ nl | indent }}|{{ nl | indent(2) }}|{{ nl | indent(2, true) }}|{{ nl | indent(2, blank=true) }}|{{ nl | indent('> ') }}|{{ nl | indent(width=1, first=true, blank=true) }}|{{ '' | indent }}|{{ 'a' | indent(2, true) }}|{{ 'a\r\nb\u2028c' | indent(1) }}
{{ 5 | indent }}
{{ s | truncate(5) }}|{{ s | truncate(5, true) }}|{{ s | truncate(5, leeway=0) }}|{{ s | truncate(5, true, '..', 0) }}|{{ s | truncate(8, false, '…', 0) }}|{{ s | truncate }}|{{ 'one two three four' | truncate(9, leeway=0) }}
{{ s | truncate(2) }}
{{ 'a b  c' | wordcount }}{{ "it's a_b 日本" | wordcount }}{{ 'the quick brown fox' | wordwrap(10) }}|{{ 'aaaaaaaaaaaa bb' | wordwrap(5) }}|{{ 'aaaaaaaaaaaa bb' | wordwrap(5, false) }}|{{ 'a b\nc d' | wordwrap(3, wrapstring='|') }}|{{ 'one  two   three' | wordwrap(6) }}
{{ html | e }}|{{ html | escape }}|{{ html | safe }}|{{ html | forceescape }}|{{ (html | e) | e }}|{{ html | e | forceescape }}|{{ html | striptags }}|{{ 'a <b>x</b> &lt; <!-- c --> d' | striptags }}|{{ html | urlencode }}|{{ {'a b': 'c/d', 'e': 1} | urlencode }}|{{ 'é/~' | urlencode }}|{{ [('a', 1)] | urlencode }}|{{ {'class': 'x', 'id': none, 'd': '<'} | xmlattr }}|{{ {'a': 1} | xmlattr(false) }}
{{ {'a b': 1} | xmlattr }}
{{ ('<' | safe) + '<' }}|{{ '<' + ('<' | safe) }}|{{ ('<' | safe) ~ '<' }}|{{ ('<%s>' | safe) % '<' }}|{{ ('a' | safe) * 2 }}|{{ ('x' | safe).join(['<', '&']) }}|{{ ('<a' | safe).replace('a', '<') }}|{{ ('a<' | safe) | upper }}|{{ [('a' | safe)] }}|{{ ('{}' | safe).format('<') }}|{{ ('a b' | safe).split() }}|{{ 'a' | safe is escaped }}{{ 'a' is escaped }}|{{ 'a' | safe == 'a' }}|{{ 'x' | safe | tojson }}|{{ ('<' | safe) | replace('<', '>') }}|{{ ['<' | safe, '<'] | join }}
{{ 1 | filesizeformat }}|{{ 500 | filesizeformat }}|{{ 1500 | filesizeformat }}|{{ 1536 | filesizeformat(true) }}|{{ 3000000 | filesizeformat }}
{{ d | attr('A') is defined }}{{ s | attr('upper') is callable }}{{ us[0] | attr('name') is defined }}
{{ 3 is odd }}{{ 4 is even }}{{ 6 is divisibleby 3 }}{{ 6 is divisibleby(4) }}{{ nil is none }}{{ 1 is number }}{{ true is number }}{{ 1 is integer }}{{ true is integer }}{{ 1.0 is float }}{{ true is boolean }}{{ 'a' is string }}{{ [] is sequence }}{{ d is mapping }}{{ d is sequence }}{{ 5 is iterable }}{{ 'a' is iterable }}{{ 'a' is lower }}{{ 'A' is upper }}{{ 1 is sameas 1 }}{{ true is sameas true }}{{ 1 is eq 1 }}{{ 1 is ne 2 }}{{ 1 is lt 2 }}{{ 2 is ge 2 }}{{ 1 is in [1] }}{{ 1 is not none }}{{ true is true }}{{ 1 is true }}{{ false is false }}{{ 'upper' is filter }}{{ 'nope' is filter }}{{ 'odd' is test }}{{ range is callable }}{{ 'a' is callable }}{{ 'a' is equalto 'a' }}{{ 1 is greaterthan 0 }}{{ d.keys() is sequence }}{{ d.items() is iterable }}
{{ 'a' is odd }}
{{ 1 is nosuchtest }}
{{ 1 | nosuchfilter }}
{% if false %}{{ 1 | nosuchfilter }}{% endif %}ok
{% if true %}{{ 1 | nosuchfilter }}{% endif %}
{{ (1 | nosuchfilter) if false else 'ok' }}
{% if true %}{% for x in [] %}{{ 1 | nosuchfilter }}{% endfor %}{% endif %}
{{ 1 is divisibleby 0 }}
{{ x is defined if y }}
{% for x in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.depth }}{{ loop.depth0 }}{{ loop.cycle('a', 'b') }};{% endfor %}
{% for x in [1, 1, 2] %}{{ loop.changed(x) }}{% endfor %}{% for x in l | map('string') %}{{ loop.index }}/{{ loop.length }}{{ loop.last }}{% endfor %}{% for x in l %}{{ loop }}{% endfor %}
{% for x in l if x > 1 %}{{ x }}{{ loop.index }}/{{ loop.length }}{% else %}none{% endfor %}{% for x in l if x > 5 %}{{ x }}{% else %}none{% endfor %}
{% for x in l %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}{% for x in l %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% endfor %}{% for x in l %}{% break %}{% else %}else{% endfor %}{% for x in l %}{% continue %}{% else %}else{% endfor %}
{% break %}
{% for x in l %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}
{% for a, b in [[1, 2], [3, 4]] %}{{ a }}{{ b }}{% endfor %}{% for a, (b, c) in [[1, [2, 3]]] %}{{ a }}{{ b }}{{ c }}{% endfor %}{% for i, c in ['ab', 'cd'] %}{{ i }}-{{ c }}{% endfor %}
{% for a, b in [[1]] %}{% endfor %}
{% for a, b in [[1, 2, 3]] %}{% endfor %}
{% for a, b in [1] %}{% endfor %}
{% for x in 5 %}{% endfor %}
{% for x in none %}{% endfor %}
{% for x in [1, [2, [3]]] recursive %}{% if x is iterable %}({{ loop(x) }}){% else %}{{ x }}@{{ loop.depth }}{% endif %}{% endfor %}
{% for x in [1] %}{{ loop([2]) }}{% endfor %}
{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = 5 %}{{ x }}{% endfor %}{{ x }}
{% set x = 1 %}{% if true %}{% set x = 2 %}{% endif %}{{ x }}{% for i in [1] %}{% if i %}{% set x = 3 %}{% endif %}{{ x }}{% endfor %}{{ x }}
{% set ns = namespace(a=1, items=[]) %}{% for i in [1, 2] %}{% set ns.a = ns.a + i %}{% endfor %}{{ ns.a }}{{ ns.b }}{{ ns.items }}{{ ns['a'] }}{{ ns }}{% set ns.b = 'x' %}{{ ns.b }}{{ ns is mapping }}{{ 'y' if ns }}
{% set ns = namespace({'a': 1}, b=2) %}{{ ns.a }}{{ ns.b }}{% set ns.s %}block{% endset %}{{ ns.s }}{% set ns.x, y = 3, 4 %}{{ ns.x }}{{ y }}
{% set ns = namespace() %}{% set ns._a = 1 %}
{{ namespace(_a=1) }}
{% set d.x = 1 %}
{% set d['x'] = 1 %}
{% set nope.x = 1 %}
{% set ns = namespace(x=1) %}{% set ns.x = ns %}{{ ns }}
{% set ns = namespace() %}{% set ns.x = [ns] %}{{ ns.x }}{{ ns.x == ns.x }}
{% set ns = namespace() %}{% set ns.x = [ns] %}{{ ns.x | tojson }}
{% set ns = namespace(x=[]) %}{% for i in range(3) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}
{% set a, b = 1, 2 %}{{ a }}{{ b }}{% set a, b = b, a %}{{ a }}{{ b }}{% set (c, d2) = [3, 4] %}{{ c }}{{ d2 }}{% set t3 = 1, 2 %}{{ t3 }}{% set a, = [9] %}{{ a }}
{% set a, b = 1 %}
{% set true = 1 %}
{% set 'a' = 1 %}
{% set x %}a{{ n }}b{% endset %}{{ x }}{% set x | upper %}ab{% endset %}{{ x }}{% set y | replace('a', 'b') | upper %}aa{% endset %}{{ y }}{{ y is string }}{% set w %}{% set inner = 1 %}{% endset %}{{ inner is defined }}
{% with a = 1, b = 2 %}{{ a }}{{ b }}{% endwith %}{{ a }}{% set a = 5 %}{% with a = 1, b = a %}{{ a }}{{ b }}{% set c = 3 %}{% endwith %}{{ a }}{{ c }}{% with %}{% set q2 = 1 %}{{ q2 }}{% endwith %}{{ q2 }}
{% macro m(a, b=2, c=a) %}{{ a }}{{ b }}{{ c }};{% endmacro %}{{ m(1) }}{{ m(1, 3) }}{{ m(b=5, a=4) }}{{ m() }}{{ m(1, c=9) }}{{ m.name }}{{ m.arguments }}{{ m }}{{ m(1) | upper }}{{ m(1) is string }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, 2) }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(z=2) }}
{% macro m(a) %}{{ a }}{% endmacro %}{{ m(1, a=2) }}
{% macro m(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, 3, x=4) }}{{ m() }}
{% macro m(x=x) %}{{ x }}{% endmacro %}{% set x = 1 %}{{ m() }}{% macro o() %}{{ x }}{% endmacro %}{{ o() }}{% set x = 2 %}{{ o() }}
{% macro m() %}{% set x = 9 %}{{ x }}{% endmacro %}{% set x = 1 %}{{ m() }}{{ x }}{% for i in [1, 2] %}{% macro k() %}{{ i }}{% endmacro %}{{ k() }}{% endfor %}{{ k }}
{% macro m(a, b=1, c) %}{% endmacro %}
{% macro fact(k) %}{{ 1 if k < 2 else k * fact(k - 1) | int }}{% endmacro %}{{ fact(5) }}
{% macro w(t) %}<{{ t }}>{{ caller() }}</{{ t }}>{% endmacro %}{% call w('b') %}in{{ n }}{% endcall %}{% macro c2() %}{{ caller(1, 2) }}{% endmacro %}{% call(a, b=3) c2() %}{{ a }}{{ b }}{% endcall %}
{% macro w() %}{{ caller is defined }}{% endmacro %}{{ w() }}
{% macro w() %}x{% endmacro %}{% call w() %}{% endcall %}
{% call n() %}{% endcall %}
{% call n %}{% endcall %}
{% filter upper %}a{{ s }}{% set zz = 1 %}{% endfilter %}{{ zz is defined }}{% filter replace('a', 'b') | upper %}aa{% endfilter %}
{% generation %}a{{ n }}{% set g = 1 %}{% endgeneration %}{{ g is defined }}
{% raw %}{{ x }}{% y %}{# z #}{% endraw %}|{%- raw -%}  {{ a }}  {%- endraw -%}  |
{# comment {{ n }} #}a{#- c -#}  b
{% block a %}x{{ n }}{% set inb = 1 %}{% endblock %}{{ inb is defined }}{% for i in [1] %}{% block b %}{{ i is defined }}{% endblock %}{% endfor %}{% block c %}c{% endblock c %}
{% print n, s %}
{% include 'x' %}
{% if false %}{% include 'x' %}{% endif %}ok
{% extends 'x' %}
{% import 'x' as y %}
{% nosuchtag %}
{% if %}{% endif %}
{% if t %}
{% endif %}
{% for x in l %}
{{ n
{{ n }
{% set x = %}
{{ }}
{{ n n }}
{{ (1 }}
{{ [1 }}
{{ 1) }}
{{ 'a }}
{{ a. }}
{{ a.'b' }}
{{ 1 + }}
{{ | upper }}
{{ n | }}
{{ f(a=1, 2) }}
{{ dict(a=1, a=2) }}
{{ n is }}
{{ n is not }}
{{ 1 is odd is even }}
{# never
{% raw %}x
{{ $ }}
{{ a ? b }}
{{ '\x4' }}
{{ 1__0 }}
{{ 0777 }}
{{ 1.e5 }}
{{ n; }}
{{ loop }}{% for x in [1] %}{% set loop = 1 %}{% endfor %}
{{ dict(a=1, b=2) }}{{ dict([('a', 1)]) }}{{ dict({'a': 1}, b=2) }}{{ dict() }}{{ dict.fromkeys(['a', 'b'], 0) }}{{ {}.fromkeys('ab') }}{{ {'a': 1}.copy() }}{{ [1].copy() }}
{{ dict(**{'a': 1}) }}{{ dict(*[[('x', 1)]]) }}{% macro m(a, b) %}{{ a }}{{ b }}{% endmacro %}{{ m(*[1, 2]) }}{{ m(**{'a': 1, 'b': 2}) }}{{ m(1, *[2]) }}
{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}{{ c.reset() }}{{ c.current }}{% set j = joiner('|') %}{{ j() }}{{ j() }}{{ j() }}
{{ raise_exception('no') }}
{{ raise_exception('no' ~ n) }}
{{ strftime_now('%Y-%m-%d %H:%M:%S') }}|{{ strftime_now('%d %b %Y') }}|{{ strftime_now('%A %a %B %j %U %W %V %G %u %w %y %C %e %k %l %I %p %P %D %F %T %R %r %c %x %X %n %t %% %Z %z %s %h %g') | replace(strftime_now('%s'), 'S') }}|{{ strftime_now('%-d %-m %-H %_d %^a %#a %-I %Q %') }}
{{ strftime_now(5) }}
{{- 1 -}}  {{ 2 }}
a {%- if t %} b {%- endif %} c
  {% if t %}
  x
  {% endif %}
y
{% if t -%}   x   {%- endif %}
a{{ '{{' }}{{ "%}" }}{{ '}}' }}
{{ {'a': {'b': 1}}.a.b }}{{ {'a': 1}}}
  {%+ if t %}x{% endif +%}
y
{{+ 5 }}{{- 5 }}
a  {#- c #}
b {# c -#}   c {#+ d +#}
e
a
{% set x = 1 %}

b
	{% set x = 1 %}	
c{{ n }}
d
x{% for i in [1,2] %}
  {{ i }}
{% endfor %}y
{{ l.__len__ }}{{ l['__len__'] is defined }}{{ d.__class__ is defined }}
{{ (1, 'a', none) | string }}{{ none | string | length }}{{ none ~ true ~ 1.0 }}{{ [none] | join }}{{ none | upper }}
{{ d == {'b': [1, {'c': 'x'}], 'items': 1, 'get': 'g', 'A': 2} }}{{ [1, 2] == [1, 2] }}{{ [1] == (1,) }}{{ 'a' == ['a'] }}{{ none == none }}{{ (1, 2) == (1, 2.0) }}{{ d.keys() == d.keys() }}{{ d.values() == d.values() }}
{{ us[0].x.y }}{{ us[1].x is defined }}{{ us[0]['x']['y'] }}{{ us | length }}{{ us[-1].name }}{{ (us | first).name }}{{ us[0].name.upper()[0] }}
{{ [1, 2, 3,] }}{{ (1, 2,) }}{{ {'a': 1,} }}{{ dict(a=1,) }}
{{ not true == false }}{{ not (true and false) }}{{ 1 + 2 * 3 - 4 / 2 }}{{ (1 + 2) * 3 }}{{ 1 ~ 2 + 3 }}{{ 'a' ~ 1 * 2 }}{{ -1 | abs }}{{ -(1) | string ~ 'x' }}{{ 2 * 3 ** 2 }}{{ 10 - 2 - 3 }}{{ 'a' if true else 'b' ~ 'c' }}{{ 1 in [1] and 2 in [1] }}
{{ '' if none is none }}{{ n if n is defined and n > 5 else 0 }}{{ (n > 5) | string }}{{ [n if t else 0, 1] }}
{{ s is string and s | length > 3 }}{{ s is not string or false }}{{ s | upper | lower | length }}{{ 5 is odd and 4 is even }}{{ l | length == 3 }}{{ l | length is odd }}
{{ True }}{{ False }}{{ None }}{{ true }}{{ false }}{{ none }}
{{ 'abc' | first }}{{ 'abc' | last }}{{ '' | first }}{{ [] | last }}
{{ 5 // 0.0 }}
{{ 'x' * 1.5 }}
{{ [1] * 'a' }}
{{ 1.5 | int + 1 }}{{ '3' | int * 2 }}{{ 7 / 2 | int }}{{ (7 / 2) | int }}
{{ big | int }}{{ big | float }}{{ big | string | length }}{{ big == 10**30 }}{{ big > 1e29 }}{{ 2**64 % 10 }}{{ -(2**64) }}{{ (2**64) | abs }}{{ 2**64 in [2**64] }}{{ {2**64: 1}[2**64] }}{{ 1e18 == 10**18 }}{{ 9007199254740993 == 9007199254740992.0 }}{{ 2**62 + 2**62 }}{{ 5 % big }}
{{ 10**5000 | string }}
{{ (10**4400) }}
{{ nl.split('\n')[:-1] }}{{ nl.strip().split('\n') | map('trim') | select | join('|') }}{{ nl.replace('\n', '\\n') }}{{ nl | tojson }}{{ [nl] }}
{{ 'Ünï'.lower() }}{{ 'Ünï' | upper }}{{ 'straße' | upper }}{{ 'ŉ' | upper }}{{ 'ﬁ' | upper }}{{ 'ǆ' | title }}{{ 'İ' | lower | length }}{{ 'ΌΣΟΣ' | lower }}
"""


def templates():
    text = CASES.strip("\n")
    out = []
    for line in text.split("\n"):
        whole = "{%" in line or "{#" in line
        out += [line] if whole else re.split(r"(?<=\}\})[| ]*(?=\{\{ )", line)
    # Those of several lines, where white space is the fact.
    out += [
        "  {% if t %}\n  x\n  {% endif %}\ny\n",
        "  {% if t -%}   x   {%- endif %}\n\nz\n\n",
        "  {%+ if t %}x{% endif +%}\ny",
        "a  {#- c #}\nb {# c -#}   c {#+ d +#}\ne\n",
        "a\n{% set x = 1 %}\n\nb\n\t{% set x = 1 %}\t\nc{{ n }}\nd\n\n",
        "x{% for i in [1,2] %}\n  {{ i }}\n{% endfor %}y\r\nz\rw",
        "{% raw %}\n  a\n{% endraw %}\nb",
        "  {% raw -%}\n  a\n  {%- endraw -%}\n  b",
        "  {#\n c #}\n  {{ n }}\n {# x #} y\n",
        "{{ n }}\n\n{{ n -}}\n\n{{- n }}\n",
        "{% if t %}{# c #}\n{% endif %}\n  {{ n }}  \n{%- if t %}\nx{%- endif -%}\n  y",
        "{{ [1,\n 2] }}\n{{ undefinedname\n.x }}",
        "{{ 'a\nb\r\nc' }}",
        "{%- for x in l -%}\n  {{ x }},\n{%- endfor -%}\n!",
        "\n\n{% set x = 1 %}\n\n",
        "a\n\x0b{% if t %}x{% endif %}\u00a0{% if t %}y{% endif %}",
        "a{% if t %}\n\n{% endif %}{{ n }}\n\n\n",
        "{%if t%}x{%else%}y{%endif%}{{n}}{#c#}",
        "{% macro m(a) -%}\n  {{ a }}\n{%- endmacro %}\n{{ m(1) }}",
        "{% set x %}\n  a\n{% endset %}\n[{{ x }}]",
        "{% for x in l %}\n\n{% if loop.first %}F{% endif %}\n{% endfor %}",
        "{{ {'a': {'b': {}}} }}{{ {} }}}",
        "",
        "\n",
        "{{ '{%' }}{% if '%}' == '%}' %}x{% endif %}{{ \"}}\" }}",
        "{ {n} } {% if t %}{ {% endif %} {",
    ]
    return out


def case(src):
    try:
        (text,), _ = ctu.render_jinja_template(conversations=[[]], chat_template=src, **VARS)
        text.encode()
        return {"template": src, "text": text}
    except Exception as e:
        return {"template": src, "error": type(e).__name__}


def main():
    cases = [case(src) for src in templates()]
    json.dump({"vars": VARS, "cases": cases}, sys.stdout, ensure_ascii=True, indent=0)
    print()
    print(len(cases), "cases,", sum("error" in c for c in cases), "errors", file=sys.stderr)


if __name__ == "__main__":
    main()
