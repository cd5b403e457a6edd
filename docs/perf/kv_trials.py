"""What keys and values in fewer bits cost that are coded in other ways: KL divergence from float32 on one
window of held-out text. docs/attention.md describes the rows. Run: kv_trials.py SHARED MODEL TOKENS"""
import json,sys,math,torch,time
from safetensors.torch import load_file
from tokenizers import Tokenizer
SHARED, name, T = sys.argv[1], sys.argv[2], int(sys.argv[3])
base=SHARED+'/models/'+name
cfg=json.load(open(base+'/config.json')); W={k:v.float() for k,v in load_file(base+'/model.safetensors').items()}
tok=Tokenizer.from_file(base+'/tokenizer.json')
def text(f,n,skip=0):
    s='';
    for l in open(SHARED+'/text/'+f):
        s+=json.loads(l)['text']+'\n'
        if len(s)>8*(n+skip): break
    ids=tok.encode(s).ids
    return torch.tensor(ids[skip:skip+n])
D=cfg['hidden_size'];H=cfg['num_attention_heads'];KH=cfg['num_key_value_heads'];d=64;L=cfg['num_hidden_layers'];G=H//KH
th=cfg['rope_parameters']['rope_theta']
def norm(x,w): return x*torch.rsqrt((x*x).mean(-1,keepdim=True)+cfg['rms_norm_eps'])*w
def rope(x,T):
    inv=th**(-torch.arange(0,d,2).float()/d); a=torch.arange(T).float()[:,None]*inv
    c=torch.cat([a.cos()]*2,-1); s=torch.cat([a.sin()]*2,-1)
    return x*c+torch.cat([-x[...,d//2:],x[...,:d//2]],-1)*s
Hd=torch.tensor([[1.]])
while Hd.shape[0]<d: Hd=torch.cat([torch.cat([Hd,Hd],1),torch.cat([Hd,-Hd],1)],0)
Hd=Hd/math.sqrt(d)
LV={4:torch.tensor([-127,-103,-82,-65,-49,-35,-22,-10,1,13,25,38,52,68,86,110.]),3:torch.tensor([-127,-81,-49,-22,1,26,55,95.]),5:torch.tensor([8.*i-128 for i in range(32)])}
def q(x,bits,g=32):
    sh=x.shape; x=x.reshape(-1,g); lv=LV[bits]; mid=(lv[1:]+lv[:-1])/2
    m=x.gather(1,x.abs().argmax(1,keepdim=True)); best=None
    for t in (1.2,1.1,1,.92,.85):
        y=x*(t*lv[0]/m); c=lv[torch.bucketize(y.contiguous(),mid)]
        f=(x*c).sum(1,keepdim=True)/(c*c).sum(1,keepdim=True)
        e=((x-f*c)**2).sum(1,keepdim=True)
        if best is None: best,be=f*c,e
        else:
            w=e<be; best=torch.where(w,f*c,best); be=torch.minimum(e,be)
    return best.reshape(sh)
def kvq(bits,g=32): 
    return lambda x,l: q(x@Hd,bits,g)@Hd
def run(ids,fk=None,fv=None,first=0,newest=0,rec=None):
    T=len(ids); x=W['model.embed_tokens.weight'][ids]
    i=torch.arange(T); causal=i[None,:]<=i[:,None]
    page=i//64
    exact=(page[None,:]<first)|(page[None,:]>=page[:,None]-newest)
    far=causal&~exact if newest else (causal if not first else causal&~(page[None,:]<first))
    for l in range(L):
        p=f'model.layers.{l}.'
        h=norm(x,W[p+'input_layernorm.weight'])
        Q=(h@W[p+'self_attn.q_proj.weight'].T).view(T,H,d).transpose(0,1); K=(h@W[p+'self_attn.k_proj.weight'].T).view(T,KH,d).transpose(0,1); V=(h@W[p+'self_attn.v_proj.weight'].T).view(T,KH,d).transpose(0,1)
        Q=rope(Q,T);K=rope(K,T)
        if rec is not None: rec.append((Q,K,V))
        Kq=fk(K,l) if fk else K; Vq=fv(V,l) if fv else V
        o=torch.empty(H,T,d)
        for hh in range(H):
            k=hh//G
            s=Q[hh]@K[k].T/8
            if fk: s=torch.where(far,Q[hh]@Kq[k].T/8,s)
            s=s.masked_fill(~causal,-1e30).softmax(-1)
            if fv: o[hh]=(s*~far)@V[k]+(s*far)@Vq[k]
            else: o[hh]=s@V[k]
        x=x+o.transpose(0,1).reshape(T,H*d)@W[p+'self_attn.o_proj.weight'].T
        h=norm(x,W[p+'post_attention_layernorm.weight'])
        x=x+(torch.nn.functional.silu(h@W[p+'mlp.gate_proj.weight'].T)*(h@W[p+'mlp.up_proj.weight'].T))@W[p+'mlp.down_proj.weight'].T
    x=norm(x,W['model.norm.weight'])
    return (x@W.get('lm_head.weight',W['model.embed_tokens.weight']).T).log_softmax(-1)
def kl(a,b): return (a.exp()*(a-b)).sum(-1).mean().item()
with torch.no_grad():
    cal=[]; run(text('calib.jsonl',2048),rec=cal)
    ids=text('eval_book.jsonl',T)
    ref=run(ids)
    # pair scale
    def pairs(e): e=e.view(*e.shape[:-1],2,d//2).sum(-2); return torch.cat([e,e],-1)
    S=[];M=[];SQ=[];GV=[]
    for l,(Q,K,V) in enumerate(cal):
        Eq=(Q**2).mean(1).view(KH,G,d).mean(1)
        mu=K.mean(1)
        S.append((pairs(Eq)/pairs((K**2).mean(1)))**.25)
        Sm=(Eq/((K-mu[:,None])**2).mean(1))**.25
        M.append((mu,Sm))
        Qg=Q.reshape(KH,G*Q.shape[1],d); SQ.append(torch.einsum('kta,ktb->kab',Qg,Qg)/Qg.shape[1])
        Wo=W[f'model.layers.{l}.self_attn.o_proj.weight'].view(D,KH,G,d); So=torch.einsum('ikga,ikgb->kab',Wo,Wo)
        Sv=torch.einsum('kta,ktb->kab',V,V)/V.shape[1]
        GV.append((So,Sv))
    def msqrt(A,p):
        w,u=torch.linalg.eigh(A); w=w.clamp_min(w.max()*1e-6); return (u*w[...,None,:]**p)@u.transpose(-1,-2)
    def best(Sk,Sq): # M minimizing tr(M Sk M')tr(M^-T Sq M^-1)
        R=msqrt(Sk,.5); Ri=msqrt(Sk,-.5); C=msqrt(R@Sq@R,.25); return C@Ri   # k' = M k
    def kpair(bits): return lambda K,l:(q((K*S[l][:,None])@Hd,bits)@Hd)/S[l][:,None]
    def kpair2(bits): return lambda K,l:(lambda s:(q((K*s)@Hd,bits)@Hd)/s)(2**torch.log2(S[l][:,None]).round())
    def kmean(bits): return lambda K,l:(q((K-M[l][0][:,None])@Hd,bits)@Hd)+M[l][0][:,None]
    def kmeanpair(bits): return lambda K,l:(q(((K-M[l][0][:,None])*S[l][:,None])@Hd,bits)@Hd)/S[l][:,None]+M[l][0][:,None]
    def kmeandiag(bits): return lambda K,l:(q(((K-M[l][0][:,None])*M[l][1][:,None])@Hd,bits)@Hd)/M[l][1][:,None]+M[l][0][:,None]
    def kfull(bits):
        def f(K,l):
            mu=M[l][0][:,None]; Kc=cal[l][1]-mu; Sk=torch.einsum('kta,ktb->kab',Kc,Kc)/Kc.shape[1]
            m=best(Sk,SQ[l]); mi=torch.linalg.inv(m)
            y=(K-mu)@m.transpose(-1,-2)@Hd
            return q(y,bits)@Hd@mi.transpose(-1,-2)+mu
        return f
    def vfull(bits):
        def f(V,l):
            m=best(GV[l][1],GV[l][0]); mi=torch.linalg.inv(m)
            return q(V@m.transpose(-1,-2)@Hd,bits)@Hd@mi.transpose(-1,-2)
        return f
    def pagemean(bits):
        def f(K,l):
            n=K.shape[1]//64; P=K[:,:n*64].view(KH,n,64,d); mu=P.mean(2,keepdim=True)
            return torch.cat([(q((P-mu)@Hd,bits)@Hd+mu).reshape(KH,n*64,d),K[:,n*64:]],1)
        return f
    def pagemeanpair(bits):
        def f(K,l):
            s=S[l][:,None]; return pagemean(bits)(K*s,l)/s
        return f
    v4=kvq(4)
    def lagmean(bits,lag):
        def f(K,l):
            n=K.shape[1]//64; P=K[:,:n*64].view(KH,n,64,d); mu=P.mean(2,keepdim=True)
            mu=torch.cat([mu[:,:1]]*lag+[mu[:,:n-lag]],1)
            return torch.cat([(q((P-mu)@Hd,bits)@Hd+mu).reshape(KH,n*64,d),K[:,n*64:]],1)
        return f
    def firstmean(bits):
        def f(K,l):
            mu=K[:,:64].mean(1,keepdim=True); return q((K-mu)@Hd,bits)@Hd+mu
        return f
    rows=[('q4',kvq(4),v4,0,0),('q4',kvq(4),v4,0,2),('q4',kvq(4),v4,1,2),('q4',kvq(4),v4,1,3),('q4',kvq(4),v4,2,2),('q4 keys',kvq(4),None,1,2),('q4 values',None,v4,1,2),('q5',kvq(5),kvq(5),1,2),('q3',kvq(3),kvq(3),1,2),
     ('keys q5 values q3',kvq(5),kvq(3),1,2),('keys q5 values q4',kvq(5),v4,1,2),('q4 less mean of page',pagemean(4),v4,1,2),('q4 less mean of page before',lagmean(4,1),v4,1,2),('q4 less mean of first page',firstmean(4),v4,1,2),('q4 less mean calibrated',kmean(4),v4,1,2),
     ('q3 less mean of page',pagemean(3),kvq(3),1,2),('q4 keys, pairs scaled',kpair(4),None,1,2),('q4 keys, pairs scaled by powers of two',kpair2(4),None,1,2),('q4 keys, less mean calibrated',kmean(4),None,1,2),('q4 keys, less mean, pairs scaled',kmeanpair(4),None,1,2),
     ('q4 keys, less mean, scaled',kmeandiag(4),None,1,2),('q4 keys, best matrix',kfull(4),None,1,2),('q4 keys, less mean of page, pairs scaled',pagemeanpair(4),None,1,2),('q4 values, best matrix',None,vfull(4),1,2)]
    for n,fk,fv,a,b in rows: print(name,'first',a,'newest',b,n,'%.5f'%kl(ref,run(ids,fk,fv,a,b)),flush=True)
