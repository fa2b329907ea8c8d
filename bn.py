import onnx, numpy as np, onnxruntime as ort
from onnx import helper, TensorProto as T
def run(x, eps, mode, outs=3, extra=None, scale=None, b=None, mean=None, var=None, shape4=False):
    C=x.shape[1]
    attrs=dict(epsilon=eps)
    if mode: attrs.update(training_mode=1, momentum=0.0)
    names=["y","m","v"][:outs]
    n=helper.make_node("BatchNormalization",["x","s","b","mean","var"],names,**attrs)
    g=helper.make_graph([n],"g",[helper.make_tensor_value_info(k,T.FLOAT,None) for k in ["x","s","b","mean","var"]],[helper.make_tensor_value_info(k,T.FLOAT,None) for k in names])
    m=helper.make_model(g,opset_imports=[helper.make_opsetid("",18)],ir_version=10)
    s=ort.InferenceSession(m.SerializeToString(),providers=["CPUExecutionProvider"])
    z=np.zeros(C,np.float32); o=np.ones(C,np.float32)
    d=lambda a,q: q if a is None else a
    return s.run(None,{"x":x,"s":d(scale,o),"b":d(b,z),"mean":d(mean,z),"var":d(var,z)})
r=np.random.default_rng(0)
x=r.standard_normal((1,4,50)).astype(np.float32)+3
y,m,v=run(x,1e-3,1)
print(m-x.mean((0,2)), v-x.var((0,2)), abs(y-(x-x.mean((0,2),keepdims=True))/np.sqrt(x.var((0,2),keepdims=True)+1e-3)).max())
x=r.standard_normal((2,3,4,5)).astype(np.float32)
w=r.standard_normal(3).astype(np.float32); b=r.standard_normal(3).astype(np.float32)
for e in (0.0,1e-5):
  (y,)=run(x,e,0,1,scale=w,b=b,var=np.ones(3,np.float32)); print(e,abs(y-(x*w[:,None,None]+b[:,None,None])).max())
