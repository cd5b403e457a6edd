"""What prompts of long-llama lose whose blocks of queries read some pages, chosen in several ways.
docs/perf/attention.md describes the rows. Run: prompt_trials.py SHARED HEADS.json TOKENS TEXT.jsonl [TRIAL...].
Without trials: squared errors of heads' outputs over those outputs' squares, on dense hidden states. A trial is
KIND,SHARE,STAND,CHOICE,ROWS,LEAST,PARTS: heads (shares of HEADS.json) or same; share of the pages; means of values
for pages that are not read: no, all, or best (but for three heads); est, oracle or window; rows of a block; pages
that are read at least; parts of a page that are summarised each. It prints KL divergence, all layers together."""
import json, sys, math, torch, time
from safetensors.torch import load_file
from tokenizers import Tokenizer
SH, HEADS, TOKENS, TEXT = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
base = SH + '/models/long-llama'
W = {k: v.float() for k, v in load_file(base + '/model.safetensors').items()}
tok = Tokenizer.from_file(base + '/tokenizer.json')
D, H, KH, d, L, G, PG, SC, NEG, CH = 384, 6, 2, 64, 8, 3, 64, 1 / 8, -1e30, 256

def text(n):
    s = ''
    for l in open(SH + '/text/' + TEXT):
        s += json.loads(l)['text'] + '\n'
        if len(s) > 8 * n: break
    return torch.tensor([0] + tok.encode(s, add_special_tokens=False).ids[:n - 1])

def norm(x, w): return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * w

def rope(x, T):
    a = torch.arange(T).float()[:, None] * 5e5 ** (-torch.arange(0, d, 2).float() / d)
    c, s = torch.cat([a.cos()] * 2, -1), torch.cat([a.sin()] * 2, -1)
    return x * c + torch.cat([-x[..., d // 2:], x[..., :d // 2]], -1) * s

def summaries(K, V, n):
    P = K.shape[0] // n
    k = K[:P * n].view(P, n, d)
    return k.mean(1), k.var(1, unbiased=False), V[:P * n].view(P, n, d).mean(1)

def chunk(Q, K, V, sm, t0, n, trials, least=1024):
    """Rows t0 to t0+n of one key-value head: exact outputs, and of each trial those without and with means."""
    hi = t0 + n
    P = (hi + PG - 1) // PG
    q = Q[:, t0:hi].reshape(-1, d)
    S = (q @ K[:P * PG].T * SC).view(G, n, -1)
    pos, pg = torch.arange(t0, hi), torch.arange(P)
    S.masked_fill_((torch.arange(P * PG)[None] > pos[:, None])[None], NEG)
    top = S.amax(-1, keepdim=True)
    E, Vp, qq = S.sub_(top).exp_().view(G, n, P, PG), V[:P * PG], q.view(G, n, d)
    mass = E.sum(-1)
    exact = (E.view(G * n, -1) @ Vp).view(G, n, d) / mass.sum(-1, keepdim=True)
    cp = pos // PG
    forced = (pg[None] == 0) | ((pg[None] >= (cp - 1)[:, None]) & (pg[None] <= cp[:, None]))
    known = (pg[None] < (cp - 1)[:, None]) & (pg[None] > 0)
    def foretold(parts):
        m, v, _ = sm[parts]
        m, v = m[:P * parts], v[:P * parts]
        est = math.log(PG // parts) + SC * (qq @ m.T) + .35 * SC * SC * ((qq * qq) @ v.T)
        return (est.view(G, n, P, parts).logsumexp(-1) - top).clamp_max(60).exp()
    outs = {}
    for name, c in trials.items():
        estm = foretold(c.get('parts', 1))
        m = torch.where(forced, mass, torch.where(known, mass if c['choice'] == 'oracle' else estm, torch.zeros(())))
        B, rows = c['rows'], (m / m.sum(-1, keepdim=True)).mean(0)
        blk = rows.view(n // B, B, P)
        w = {'mean': lambda: blk.mean(1), 'max': lambda: blk.amax(1), 'first': lambda: blk[:, 0]}[c.get('by', 'mean')]()
        if c['choice'] == 'window': w = pg.float()[None].expand(n // B, P).clone()
        f1, kb = forced.view(n // B, B, P).any(1), known.view(n // B, B, P).all(1)
        order = torch.where(kb, w, torch.full((), -1.)).argsort(-1, descending=True)
        chosen = f1.clone()
        for b in range(n // B):
            few = int(kb[b].sum())
            room = max(math.ceil(c['share'] * (int(cp[b * B]) + 1)), 1, c.get('least', 0)) - int(f1[b].sum())
            if t0 + b * B < least: room = few
            if room > 0: chosen[b, order[b, :min(room, few)]] = True
        ch = chosen.repeat_interleave(B, 0) & (pg[None] <= cp[:, None])
        den, num = (mass * ch).sum(-1, keepdim=True), ((E * ch[None, :, :, None]).view(G * n, -1) @ Vp).view(G, n, d)
        rest = estm * (known & ~ch)
        outs[name] = (num / den, (num + rest @ sm[1][2][:P]) / (den + rest.sum(-1, keepdim=True)), ch.sum().item(), int((cp + 1).sum()))
    return exact, outs

def layers(ids, attn):
    T = len(ids)
    x = W['model.embed_tokens.weight'][ids]
    for l in range(L):
        p = f'model.layers.{l}.'
        h = norm(x, W[p + 'input_layernorm.weight'])
        Q, K, V = ((h @ W[p + f'self_attn.{n}_proj.weight'].T).view(T, -1, d).transpose(0, 1) for n in 'qkv')
        Q, K, V = rope(Q, T).contiguous(), rope(K, T).contiguous(), V.contiguous()
        o = torch.cat([attn(l, k, Q[k * G:(k + 1) * G], K[k], V[k]) for k in range(KH)])
        x = x + o.transpose(0, 1).reshape(T, H * d) @ W[p + 'self_attn.o_proj.weight'].T
        h = norm(x, W[p + 'post_attention_layernorm.weight'])
        x = x + (torch.nn.functional.silu(h @ W[p + 'mlp.gate_proj.weight'].T) * (h @ W[p + 'mlp.up_proj.weight'].T)) @ W[p + 'mlp.down_proj.weight'].T
    return norm(x, W['model.norm.weight'])

def dense(l, k, Q, K, V):
    sm = {1: summaries(K, V, PG)}
    return torch.cat([chunk(Q, K, V, sm, t0, CH, {})[0] for t0 in range(0, K.shape[0], CH)], 1)

def kl(a, b):
    head = lambda x: (x @ W['model.embed_tokens.weight'].T).log_softmax(-1)
    return torch.cat([(lambda x, y: (x.exp() * (x - y)).sum(-1))(head(a[i:i + 1024]), head(b[i:i + 1024])) for i in range(0, len(a), 1024)])

def shares(pages):
    """As formats/attention deals them out: along lower convex hulls, the best rise first."""
    p = json.load(open(HEADS)); out = {}; rises = []; room = pages * len(p['heads'])
    for h in p['heads']:
        key = h['block'], h['head']; out[key] = p['grid'][0]; room -= p['grid'][0]; c = []
        for q in sorted([(1, 0.)] + list(zip(p['grid'], h['kld']))):
            while len(c) > 1 and (c[-1][1] - c[-2][1]) * (q[0] - c[-2][0]) >= (q[1] - c[-2][1]) * (c[-1][0] - c[-2][0]): c.pop()
            c.append(q)
        rises += [((a[1] - b[1]) / (b[0] - a[0]), b[0] - a[0], key) for a, b in zip(c, c[1:])]
    for _, cost, key in sorted(rises, key=lambda r: -r[0]):
        t = min(cost, room)
        if t <= 0: break
        out[key] += t; room -= t
    return out

def errors(ids):
    trials, sums = {}, {}
    for s in (.1, .2):
        for B in (1, 8, 16, 64): trials[f'mean of {B} rows, {s}'] = dict(rows=B, share=s, choice='est')
        trials[f'max of 64 rows, {s}'] = dict(rows=64, share=s, choice='est', by='max')
        for B in (8, 16): trials[f'first of {B} rows, {s}'] = dict(rows=B, share=s, choice='est', by='first')
        for B in (8, 64): trials[f'oracle, {B} rows, {s}'] = dict(rows=B, share=s, choice='oracle')
        trials[f'window, {s}'] = dict(rows=64, share=s, choice='window')
    def attn(l, k, Q, K, V):
        sm = {1: summaries(K, V, PG)}
        for t0 in range(2048 + 3 * CH, K.shape[0], 4 * CH):
            exact, outs = chunk(Q, K, V, sm, t0, CH, trials)
            for n, (a, b, _, _) in outs.items():
                e = sums.setdefault((n, l, k), [0, 0, 0])
                for i, x in enumerate((a - exact, b - exact, exact)): e[i] += x.square().sum().item()
        return dense(l, k, Q, K, V)
    layers(ids, attn)
    for n in trials:
        e = [sums[n, l, k] for l in range(L) for k in range(KH)]
        print(n, 'without means %.4f with %.4f' % tuple(sum(x[i] / x[2] for x in e) / len(e) for i in (0, 1)))

def trial(ids, ref, name):
    kind, s, stand, choice, B, least, parts = name.split(',')
    own, read = shares(float(s)) if kind == 'heads' else None, [0, 0]
    def attn(l, k, Q, K, V):
        n, out = int(parts), []
        sm = {x: summaries(K, V, PG // x) for x in {1, n}}
        c = dict(rows=int(B), share=own[l, k] if own else float(s), choice=choice, least=int(least), parts=n)
        for t0 in range(0, K.shape[0], CH):
            without, means, a, b = chunk(Q, K, V, sm, t0, CH, {'': c})[1]['']
            read[0] += a; read[1] += b
            out.append(means if stand == 'all' or stand == 'best' and (l, k) not in {(3, 1), (4, 0), (7, 0)} else without)
        return torch.cat(out, 1)
    x = kl(ref, layers(ids, attn))[1024:]
    print(name, 'read %.3f KL %.5f worst %.3f' % (read[0] / read[1], x.mean(), x.max()), flush=True)

with torch.no_grad():
    ids = text(TOKENS)
    if len(sys.argv) == 5: errors(ids)
    else:
        ref = layers(ids, dense)
        for name in sys.argv[5:]: trial(ids, ref, name)
