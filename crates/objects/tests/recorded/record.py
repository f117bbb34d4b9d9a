#!/usr/bin/env python3
"""Records what a real API server answers, for ../recorded.rs:

    kubectl proxy --port=8001 &
    python3 record.py http://127.0.0.1:8001 .

It needs an empty test cluster (`cargo xtask cluster up --nodes 0`), makes and removes a CRD and some objects in `default`.
"""
import json
import sys
import time
import urllib.error
import urllib.request

SERVER, DIRECTORY = sys.argv[1:3]


def call(method, path, body=None, ctype='application/json'):
    data = None if body is None else json.dumps(body).encode()
    headers = {'Content-Type': ctype, 'Accept': 'application/json'}
    request = urllib.request.Request(SERVER + path, method=method, data=data, headers=headers)
    try:
        with urllib.request.urlopen(request) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        text = error.read().decode()
        try:
            return error.code, json.loads(text)
        except ValueError:
            return error.code, {'message': text}


def lines(name, schema, key, values):
    with open(f'{DIRECTORY}/{name}.json', 'w') as file:
        file.write('{"schema": ' + json.dumps(schema) + ',\n"' + key + '": [\n' + ',\n'.join(values) + '\n]}\n')


def answers(cases):
    for case in cases:
        line = {key: case[key] for key in ('old', 'spec') if key in case}
        if case['status'] >= 400:
            line['refused'] = case['message'].split(' is invalid: ', 1)[1]
        elif 'result' in case:
            line['accepted'] = case['result']
        yield json.dumps(line, sort_keys=True)


schema={"type":"object","properties":{
 "spec":{"type":"object","required":["image"],"properties":{
  "image":{"type":"string","minLength":1,"maxLength":10,"pattern":"^[a-z]+$"},
  "count":{"type":"integer","format":"int32","minimum":1,"maximum":100},
  "big":{"type":"integer","maximum":2147483647},
  "plain":{"type":"integer"},
  "ratio":{"type":"number","exclusiveMinimum":True,"minimum":0,"maximum":1000000,"multipleOf":0.5},
  "mode":{"type":"string","enum":["fast","slow"]},
  "level":{"type":"integer","enum":[1,2]},
  "flag":{"type":"boolean","default":True},
  "port":{"x-kubernetes-int-or-string":True},
  "when":{"type":"string","format":"date-time"},
  "long":{"type":"string","format":"duration"},
  "ip":{"type":"string","format":"ipv4"},
  "maybe":{"type":"string","nullable":True},
  "tags":{"type":"array","x-kubernetes-list-type":"set","maxItems":3,"minItems":1,"items":{"type":"string"}},
  "parts":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["name"],"maxItems":20,"items":{"type":"object","required":["name"],"properties":{"name":{"type":"string"},"size":{"type":"integer","minimum":0},"kind":{"type":"string","default":"normal"},"note":{"type":"string"}},
     "x-kubernetes-validations":[{"rule":"!has(self.size) || self.size < 50","message":"a part is smaller than 50"}]}},
  "list":{"type":"array","items":{"type":"object","properties":{"a":{"type":"integer"}}}},
  "labels":{"type":"object","maxProperties":3,"additionalProperties":{"type":"string","maxLength":5}},
  "choice":{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"string"}},"oneOf":[{"required":["a"]},{"required":["b"]}]},
  "either":{"type":"object","properties":{"a":{"type":"string"},"b":{"type":"integer"}},"anyOf":[{"required":["a"]},{"properties":{"b":{"minimum":5}},"required":["b"]}],"not":{"required":["a","b"]}},
  "atom":{"type":"object","x-kubernetes-map-type":"atomic","properties":{"x":{"type":"integer"},"y":{"type":"integer"}}},
  "free":{"type":"object","x-kubernetes-preserve-unknown-fields":True},
  "limit":{"type":"integer","x-kubernetes-validations":[{"rule":"self >= oldSelf","message":"must not shrink","reason":"FieldValueForbidden"},{"rule":"self % 2 == 0","messageExpression":"self > 2 ? 'must be even and large' : 'must be even'"}]},
  "name":{"type":"string","maxLength":20,"x-kubernetes-validations":[{"rule":"self.startsWith('x')"}]},
 },"x-kubernetes-validations":[
   {"rule":"!has(self.count) || !has(self.plain) || self.plain <= self.count","message":"plain must not exceed count","fieldPath":".plain"},
   {"rule":"!(has(self.mode) && self.mode == 'slow' && !has(self.plain))","reason":"FieldValueRequired","message":"slow needs plain","fieldPath":".plain"},
   {"rule":"!has(self.list) || self.list[0].a > 0","message":"the first is positive"},
   {"rule":"!has(self.when) || self.when < timestamp('2030-01-01T00:00:00Z')","message":"not that late"},
   {"rule":"!has(self.long) || self.long <= duration('1h')","message":"an hour at most"},
   {"rule":"!has(self.ratio) || self.ratio != 3.0","message":"not three"},
 ]},
 "status":{"type":"object","properties":{"phase":{"type":"string"},"conditions":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["type"],"items":{"type":"object","required":["type"],"properties":{"type":{"type":"string"},"status":{"type":"string"}}}}}}}}
crd={"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"things.test.example.com"},"spec":{"group":"test.example.com","scope":"Namespaced","names":{"plural":"things","singular":"thing","kind":"Thing","listKind":"ThingList"},"versions":[{"name":"v1","served":True,"storage":True,"subresources":{"status":{}},"schema":{"openAPIV3Schema":schema}}]}}

CRDS = '/apis/apiextensions.k8s.io/v1/customresourcedefinitions'
base = '/apis/test.example.com/v1/namespaces/default/things'


def fresh_crd():
    call('DELETE', f'{CRDS}/things.test.example.com')
    while call('GET', f'{CRDS}/things.test.example.com')[0] != 404:
        time.sleep(0.2)
    status, answer = call('POST', CRDS, crd)
    assert status == 201, answer
    while call('GET', base)[0] != 200:
        time.sleep(0.2)
    time.sleep(2)  # until every handler has the schema


fresh_crd()
def thing(name,spec): return {"apiVersion":"test.example.com/v1","kind":"Thing","metadata":{"name":name},"spec":spec}
n=[0]
validation=[]
def v(spec,old=None,dry='?dryRun=All'):
    n[0]+=1; name=f'v{n[0]}'
    o=thing(name,spec)
    if old is not None:
        st,r=call('POST',base,thing(name,old)); assert st==201,(r,old)
        o['metadata']['resourceVersion']=r['metadata']['resourceVersion']
        st,r=call('PUT',f'{base}/{name}{dry}',o)
    else: st,r=call('POST',base+dry,o)
    e={"spec":spec,"status":st}
    if old is not None: e['old']=old
    if st>=400: e["message"]=r["message"]; e["causes"]=sorted(r.get("details",{}).get("causes",[]),key=lambda c:json.dumps(c,sort_keys=True))
    else: e["result"]=r["spec"]
    validation.append(e)
ok={"image":"abc"}
def w(**k): d=dict(ok); d.update(k); return d
for s in [ok,{}, w(image=""),w(image="abcdefghijkl"),w(image="A1"),w(image=5),w(image=None),w(count=0),w(count=101),w(count="x"),w(count=1.5),w(count=2.0),w(count=True),w(count={}),w(count=[1]),w(count=3000000000),w(plain="x"),w(plain=1.5),w(plain={}),w(big=2147483648),
  w(ratio=0),w(ratio=-1.5),w(ratio=0.7),w(ratio=1000001),w(ratio=3),w(ratio=3.0),w(ratio=2),w(ratio=2000000.5),w(ratio="x"),w(mode="medium"),w(mode=1),w(mode="slow"),w(mode="slow",plain=1),w(level=3),w(level=1),w(level=1.0),w(flag="x"),w(flag=False),w(flag=None),w(port=1),w(port="x"),w(port=True),w(port=1.5),
  w(when="x"),w(when="2020-01-01T00:00:00Z"),w(when="2031-01-01T00:00:00Z"),w(when=5),w(long="5m"),w(long="2h"),w(long="x"),w(ip="1.2.3"),w(ip="1.2.3.4"),w(maybe=None),w(maybe="x"),w(plain=None),
  w(tags=[]),w(tags=["a","b","c","d"]),w(tags=["a","a"]),w(tags=["a","a","a"]),w(tags="a"),w(tags=[1]),w(tags={}),w(parts=[{"name":"a"},{"name":"a","size":1}]),w(parts=[{"size":1}]),w(parts=[{"name":"a","size":60}]),w(parts=[{"name":"a","size":-1},{"name":"b","size":60}]),w(parts=[{"name":"a","odd":1}]),w(parts=[5]),w(parts=[None]),
  w(list=[{"a":0}]),w(list=[]),w(list=[{}]),w(list=[{"a":"x"}]),w(labels={"a":"b"}),w(labels={"a":"bbbbbbb"}),w(labels={"a":1}),w(labels={"a":"1","b":"1","c":"1","d":"1"}),w(labels=[]),
  w(choice={}),w(choice={"a":"1"}),w(choice={"a":"1","b":"2"}),w(either={"a":"x"}),w(either={"b":4}),w(either={"b":6}),w(either={"a":"x","b":6}),w(either={}),
  w(atom={"x":1}),w(atom={"x":"1"}),w(free={"a":{"b":[1]}}),w(free=[]),w(limit=3),w(limit=4),w(name="abc"),w(name="xabc"),w(name="x"*21),w(count=1,plain=2),w(count=0,plain=2),"x",w(unknown=1),w(parts=[{"name":"a"}])]:
    v(s)
# null at root etc
for old,new in [(w(limit=2),w(limit=4)),(w(limit=4),w(limit=2)),(w(limit=4),w(limit=3)),(ok,w(limit=2)),(w(count=5,plain=3),w(count=2,plain=3)),(w(parts=[{"name":"a","size":1},{"name":"b"}]),w(parts=[{"name":"b","size":70},{"name":"a","size":1}]))]:
    v(new,old)
lines('validation', schema, 'cases', answers(validation))
# ratcheting: create objects, then tighten CRD
names=[]
olds=[w(mode="fast",labels={"a":"bbbbb"},parts=[{"name":"a","size":40},{"name":"b","size":1}],list=[{"a":5}],name="xabc",count=50,tags=["a","b"])]
for i in range(12):
    st,r=call('POST',base,thing(f'r{i}',olds[0])); assert st==201,r
strict=json.loads(json.dumps(schema)); p=strict["properties"]["spec"]["properties"]
p["mode"]["enum"]=["slow"]; p["labels"]["additionalProperties"]["maxLength"]=3; p["parts"]["items"]["properties"]["size"]["maximum"]=30; p["parts"]["items"]["x-kubernetes-validations"][0]["rule"]="!has(self.size) || self.size < 20"; p["list"]["items"]["properties"]["a"]["maximum"]=2; p["name"]["x-kubernetes-validations"][0]["rule"]="self.startsWith('y')"; p["count"]["maximum"]=10
crd2=json.loads(json.dumps(crd)); crd2["spec"]["versions"][0]["schema"]["openAPIV3Schema"]=strict
st,r=call('GET','/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.test.example.com'); crd2["metadata"]["resourceVersion"]=r["metadata"]["resourceVersion"]
st,r=call('PUT','/apis/apiextensions.k8s.io/v1/customresourcedefinitions/things.test.example.com',crd2); assert st==200,r
time.sleep(4)
rat=[]
def o(**k): d=json.loads(json.dumps(olds[0])); d.update(k); return d
for i,new in enumerate([o(),o(plain=3),o(image="xyz"),o(mode="fast",labels={"a":"bbbbb","b":"c"}),o(labels={"a":"cccc"}),o(parts=[{"name":"b","size":1},{"name":"a","size":40}]),o(parts=[{"name":"b","size":1},{"name":"a","size":41}]),o(parts=[{"name":"a","size":40,"note":"n"},{"name":"b","size":1}]),o(list=[{"a":5},{"a":1}]),o(name="xabd"),o(count=51),o(tags=["a","b","c"],mode="medium")]):
    st,cur=call('GET',f'{base}/r{i}')
    ob=thing(f'r{i}',new); ob['metadata']['resourceVersion']=cur['metadata']['resourceVersion']
    st,r=call('PUT',f'{base}/r{i}',ob)
    e={"old":cur["spec"],"spec":new,"status":st}
    if st>=400: e["message"]=r["message"]; e["causes"]=sorted(r.get("details",{}).get("causes",[]),key=lambda c:json.dumps(c,sort_keys=True))
    rat.append(e)
lines('ratcheting', strict, 'cases', answers(rat))

fresh_crd()
lives=[]
A='application/apply-patch+yaml'
class Life:
    def __init__(s,group,kind,path,name,version,shape=None):
        s.path=f'{path}/{name}'; s.coll=path; s.name=name; s.steps=[]; s.v=version; s.kind=kind; s.group=group
        call('DELETE',s.path+'?gracePeriodSeconds=0'); time.sleep(.3)
        lives.append({"group":group,"kind":kind,"steps":s.steps})
    def body(s,extra,meta=None):
        b={"apiVersion":s.v,"kind":s.kind,"metadata":{"name":s.name,**(meta or {})}}; b.update(extra); return b
    def rec(s,op,manager,st,r,**k):
        e={"op":op,"manager":manager,**k}
        if st>=400: e["refused"]=r["message"]; e["causes"]=r.get("details",{}).get("causes",[])
        else: e["result"]=r
        s.steps.append(e)
    def apply(s,manager,extra,meta=None,force=False,sub=''):
        b=s.body(extra,meta)
        st,r=call('PATCH',f'{s.path}{"/"+sub if sub else ""}?fieldManager={manager}&force={str(force).lower()}',b,A)
        s.rec('apply',manager,st,r,body=b,force=force,subresource=sub)
    def create(s,manager,extra,meta=None):
        st,r=call('POST',f'{s.coll}?fieldManager={manager}',s.body(extra,meta)); s.rec('update',manager,st,r,subresource='')
    def update(s,manager,f,sub=''):
        st,o=call('GET',s.path); before=json.dumps(o); f(o)
        st,r=call('PUT',f'{s.path}{"/"+sub if sub else ""}?fieldManager={manager}',o); s.rec('update',manager,st,r,subresource=sub,sent=o["metadata"].get("managedFields"))
    def merge(s,manager,p,sub=''):
        st,r=call('PATCH',f'{s.path}{"/"+sub if sub else ""}?fieldManager={manager}',p,'application/merge-patch+json'); s.rec('update',manager,st,r,subresource=sub)
T=lambda n: Life('test.example.com','Thing',base,n,'test.example.com/v1')
# 1 create by apply, change, remove, share, conflict, force
l=T('s1')
l.apply('a',{"spec":{"image":"abc","count":3,"labels":{"x":"1","y":"2"},"tags":["p","q"],"parts":[{"name":"one","size":1},{"name":"two"}],"atom":{"x":1},"free":{"k":{"v":1},"l":[1,2]}}},{"labels":{"app":"x"}})
l.apply('a',{"spec":{"image":"abc","count":3,"labels":{"x":"1","y":"2"},"tags":["p","q"],"parts":[{"name":"one","size":1},{"name":"two"}],"atom":{"x":1},"free":{"k":{"v":1},"l":[1,2]}}},{"labels":{"app":"x"}})
l.apply('b',{"spec":{"image":"abc","count":4}})
l.apply('b',{"spec":{"image":"abc","tags":["r"],"parts":[{"name":"three","size":3},{"name":"one","note":"n"}],"labels":{"z":"3"}}})
l.apply('b',{"spec":{"image":"abc","count":4,"tags":["r"],"parts":[{"name":"three","size":3},{"name":"one","note":"n"}],"labels":{"z":"3"}}},force=True)
l.apply('a',{"spec":{"image":"abc","tags":["q"],"parts":[{"name":"one","size":1}],"labels":{"x":"1"}}})
l.apply('a',{"spec":{"image":"abc"}})
l.apply('b',{"spec":{"image":"abc"}})
l.apply('a',{"spec":{"image":"xyz"}})
l.apply('a',{"spec":{"image":"xyz"}},force=True)
l.apply('b',{})
l.apply('c',{"spec":{"parts":[{"name":"p"},{"name":"p"}]}})
l.apply('c',{"spec":{"parts":[{"size":1}]}})
# 2 updates and status
l=T('s2')
l.create('u',{"spec":{"image":"abc","count":3,"parts":[{"name":"one","size":1}],"tags":["p"],"labels":{"x":"1"},"free":{"a":{"b":1}},"list":[{"a":1}],"atom":{"x":1}}},{"labels":{"app":"x"},"annotations":{"n":"1"},"finalizers":["a.example.com/f"]})
l.update('u',lambda o:o["spec"].update(count=4))
l.update('w',lambda o:o["spec"].update(count=5,mode="fast"))
l.update('st',lambda o:o.update(status={"phase":"Up","conditions":[{"type":"Ready","status":"True"}]}),'status')
l.update('st',lambda o:o.update(status={"phase":"Up","conditions":[{"type":"Ready","status":"False"}]}),'status')
l.update('other',lambda o:o.update(status={"conditions":[{"type":"Done","status":"True"},{"type":"Ready","status":"False"}]}),'status')
l.update('w',lambda o:(o["spec"]["parts"].append({"name":"two","size":2}),o["spec"]["tags"].append("q"),o["spec"]["labels"].update(y="2"),o["spec"]["free"].update(c=1),o["spec"]["atom"].update(y=2),o["spec"]["list"].append({"a":2})))
l.update('u',lambda o:(o["spec"].pop("labels"),o["spec"]["parts"].pop(0),o["metadata"].pop("finalizers")))
l.update('u',lambda o:None)
l.merge('m',{"metadata":{"labels":{"more":"1"}},"spec":{"free":None}})
l.apply('a',{"spec":{"image":"abc","count":5}})
l.apply('a',{"spec":{"image":"abc","count":6}})
l.apply('a',{"spec":{"image":"abc","count":6}},force=True)
l.apply('a',{"spec":{"image":"abc"}})
l.apply('a',{"status":{"phase":"Down"}},sub='status',force=True)
l.update('u',lambda o:o["metadata"].update(managedFields=[]))
l.apply('a',{"spec":{"image":"abc","plain":1}})
l.update('u',lambda o:o["metadata"].update(managedFields=[{}]))
# 3 config map
l=Life('','ConfigMap','/api/v1/namespaces/default/configmaps','s3','v1')
l.create('u',{"data":{"a":"1","b":"2"}},{"labels":{"app":"x"}})
l.apply('k',{"data":{"a":"1","c":"3"}})
l.apply('k',{"data":{"a":"9"}})
l.apply('k',{"data":{"a":"9"}},force=True)
l.merge('m',{"data":{"d":"4","b":None}})
l.apply('k',{})
l.apply('k',{"data":{}})
# 4 pod
l=Life('','Pod','/api/v1/namespaces/default/pods','s4','v1')
l.create('u',{"spec":{"schedulerName":"nobody","terminationGracePeriodSeconds":0,"containers":[{"name":"c","image":"i","env":[{"name":"A","value":"1"}],"ports":[{"containerPort":80}],"resources":{"limits":{"cpu":"1"}},"volumeMounts":[{"name":"v","mountPath":"/v"}]}],"volumes":[{"name":"v","emptyDir":{}}],"tolerations":[{"key":"x","operator":"Exists"}],"nodeSelector":{"a":"b"}}},{"labels":{"app":"x"}})
l.merge('m',{"metadata":{"annotations":{"x":"y"}}})
l.update('kubelet',lambda o:o["status"].update(phase="Running",podIP="10.0.0.1",podIPs=[{"ip":"10.0.0.1"}],conditions=[{"type":"Ready","status":"True","lastTransitionTime":None,"lastProbeTime":None}],containerStatuses=[{"name":"c","ready":True,"restartCount":0,"image":"i","imageID":"i","state":{"running":{"startedAt":"2020-01-01T00:00:00Z"}}}]),'status')
l.apply('k',{"metadata":{"name":"s4","labels":{"app":"x","b":"c"}}})
l=Life('','Pod','/api/v1/namespaces/default/pods','s6','v1')
l.create('u',{"spec":{"schedulerName":"nobody","initContainers":[{"name":"i","image":"i","restartPolicy":"Always"}],"containers":[{"name":"c","image":"i","command":["x"],"livenessProbe":{"exec":{"command":["a"]}},"securityContext":{"capabilities":{"drop":["ALL"]}},"env":[{"name":"P","valueFrom":{"fieldRef":{"fieldPath":"metadata.name"}}}]}],"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"a","operator":"Exists"}]}]}}},"volumes":[{"name":"v","configMap":{"name":"m"}}],"hostAliases":[{"ip":"1.2.3.4","hostnames":["x"]}],"topologySpreadConstraints":[{"maxSkew":1,"topologyKey":"k","whenUnsatisfiable":"ScheduleAnyway","labelSelector":{"matchLabels":{"a":"b"}}}],"imagePullSecrets":[{"name":"s"}],"subdomain":"d","hostname":"h"}},{"generateName":"s6-","ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"s3","uid":"11111111-1111-1111-1111-111111111111","controller":True}]})
# 5 service
l=Life('','Service','/api/v1/namespaces/default/services','s5','v1')
l.apply('k',{"spec":{"clusterIP":"None","selector":{"a":"b"},"ports":[{"name":"x","port":80},{"name":"y","port":81,"protocol":"TCP"}]}})
l.apply('j',{"spec":{"ports":[{"name":"z","port":82}]}})
l.apply('k',{"spec":{"clusterIP":"None","selector":{"a":"b"},"ports":[{"name":"x","port":80}]}})
l.merge('m',{"spec":{"publishNotReadyAddresses":True}})


# Pods are tracked before the server's own plugins have had a hand in them: take out what those added.
def clean(o,kind):
    m=o['metadata']
    for k in ('uid','resourceVersion','generation','creationTimestamp','namespace'): m.pop(k,None)
    if kind=='Pod':
        sp=o['spec']
        for k in ('priority','preemptionPolicy','serviceAccount','serviceAccountName'): sp.pop(k,None)
        sp['tolerations']=[t for t in sp.get('tolerations',[]) if 'node.kubernetes.io' not in t['key']]
        if not sp['tolerations']: sp.pop('tolerations')
        sp['volumes']=[v for v in sp['volumes'] if not v['name'].startswith('kube-api')]
        for c in sp['containers']+sp.get('initContainers',[]):
            if 'volumeMounts' in c:
                c['volumeMounts']=[v for v in c['volumeMounts'] if not v['name'].startswith('kube-api')]
                if not c['volumeMounts']: c.pop('volumeMounts')
        if o.get('status',{}).get('phase')=='Pending': o['status']={}
        else: o.get('status',{}).pop('qosClass',None)


def steps(life):
    for step in life['steps']:
        step.pop('causes', None)
        if 'result' in step:
            clean(step['result'], life['kind'])
        for key in ('force', 'subresource', 'sent'):
            if not step.get(key) and step.get(key) != []:
                step.pop(key, None)
        yield json.dumps(step, sort_keys=True)


lines('ownership', schema, 'lives', [
    '{"group": "%s", "kind": "%s", "steps": [\n%s\n]}' % (life['group'], life['kind'], ',\n'.join(steps(life)))
    for life in lives
])
for path in ('pods/s4', 'pods/s6', 'services/s5', 'configmaps/s3'):
    call('DELETE', f'/api/v1/namespaces/default/{path}?gracePeriodSeconds=0')
call('DELETE', f'{CRDS}/things.test.example.com')

# Definitions that are refused.
S={"type":"string"}
def spec(p,**k): return {"type":"object","properties":{"spec":{"type":"object","properties":p,**k}}}
bad=[
 {"properties":{"spec":{"type":"object"}}},
 {"type":"string"},
 {"type":"object","properties":{"spec":{}}},
 spec({"a":{"type":"array"}}),
 spec({"a":{"type":"array","items":{}}}),
 spec({"a":{"type":"strang"}}),
 spec({"a":{"type":"string","pattern":"("}}),
 spec({"a":{"type":"object","properties":{"b":S},"additionalProperties":S}}),
 {"type":"object","additionalProperties":S},
 spec({"a":S},anyOf=[{"type":"object"}]),
 spec({"a":S},allOf=[{"properties":{"a":{"description":"x","default":"y"}}}]),
 spec({"a":{"type":"array","items":S,"x-kubernetes-list-type":"map"}}),
 spec({"a":{"type":"array","items":{"type":"object","properties":{"k":S}},"x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["k"]}}),
 spec({"a":{"type":"array","items":{"type":"object","required":["k"],"properties":{"k":S}},"x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["z"]}}),
 spec({"a":{"type":"array","items":S,"x-kubernetes-list-type":"bag"}}),
 spec({"a":{"type":"string","x-kubernetes-list-type":"set"}}),
 spec({"a":{"type":"array","items":S,"uniqueItems":True}}),
 spec({"a":{"type":"string","default":5}}),
 spec({"a":{"type":"object","properties":{"b":S},"default":{"c":"x"}}}),
 spec({"a":{"type":"integer","minimum":3,"default":1}}),
 spec({"a":{"type":"integer","x-kubernetes-int-or-string":True}}),
 spec({"a":{"x-kubernetes-int-or-string":True,"x-kubernetes-preserve-unknown-fields":True}}),
 spec({"a":{"x-kubernetes-embedded-resource":True,"x-kubernetes-preserve-unknown-fields":True}}),
 {"type":"object","properties":{"metadata":{"type":"object","properties":{"labels":{"type":"object"}}}}},
 spec({"a":{"type":"string","x-kubernetes-validations":[{"rule":"self =="}]}}),
 spec({"a":{"type":"string","x-kubernetes-validations":[{"rule":""}]}}),
 spec({"a":{"type":"string","x-kubernetes-validations":[{"rule":"true","reason":"Bad"}]}}),
 spec({"a":{"type":"string","x-kubernetes-validations":[{"rule":"true","message":"a\nb"}]}}),
 spec({"a":{"type":"string","x-kubernetes-validations":[{"rule":"true &&\ntrue"}]}}),
 spec({"a":{"type":"string","x-kubernetes-validations":[{"rule":"true","messageExpression":"("}]}}),
 spec({"a":{"type":"object","properties":{"b":S},"x-kubernetes-validations":[{"rule":"self.c == 'x'"}]}}),
 spec({"a":{"type":"object","properties":{"b":S},"x-kubernetes-validations":[{"rule":"true","fieldPath":".zzz"}]}}),
 spec({"a":{"type":"string","nullable":True},"b":{"type":"string","format":"odd"}}),
 spec({"a":{"type":"string","x-kubernetes-map-type":"atomic"}}),
]

definitions = []
for bad_schema in bad:
    definition = json.loads(json.dumps(crd))
    definition['metadata']['name'] = 'bads.test.example.com'
    definition['spec']['names'] = {'plural': 'bads', 'singular': 'bad', 'kind': 'Bad', 'listKind': 'BadList'}
    definition['spec']['versions'][0].pop('subresources')
    definition['spec']['versions'][0]['schema']['openAPIV3Schema'] = bad_schema
    status, answer = call('POST', f'{CRDS}?dryRun=All', definition)
    causes = answer.get('details', {}).get('causes', []) if status >= 400 else []
    definitions.append(json.dumps({'schema': bad_schema, 'refused': [{
        'path': cause['field'].replace('spec.validation.openAPIV3Schema.', ''),
        # What follows is in the words of Go's own parsers.
        'message': cause['message'].split(': <input>')[0].split(': error parsing')[0],
    } for cause in causes]}))
with open(f'{DIRECTORY}/definitions.json', 'w') as file:
    file.write('[\n' + ',\n'.join(definitions) + '\n]\n')

# Patches, tried without being stored.
out=[]
CM='/api/v1/namespaces/default/configmaps'; D='/apis/apps/v1/namespaces/default/deployments'
call('DELETE',CM+'/pp'); call('DELETE',D+'/pp'); time.sleep(.5)
st,cm=call('POST',CM,{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"pp","finalizers":["a.example.com/x","b.example.com/y"]},"data":{"a":"1","b":"2"}}); assert st==201,cm
st,dep=call('POST',D,{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"pp"},"spec":{"replicas":0,"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"nodeSelector":{"x":"y"},"tolerations":[{"key":"t1","operator":"Exists"}],"volumes":[{"name":"v1","emptyDir":{}},{"name":"v2","emptyDir":{"medium":"Memory"}}],"containers":[{"name":"a","image":"i","args":["1"],"env":[{"name":"X","value":"1"},{"name":"Y","value":"2"}],"ports":[{"containerPort":80},{"containerPort":81}]},{"name":"b","image":"j"}]}}}}); assert st==201,dep
time.sleep(1)
st,dep=call('GET',D+'/pp')
def j(ops):
    st,r=call('PATCH',CM+'/pp?dryRun=All',ops,'application/json-patch+json')
    e={"kind":"ConfigMap","how":"json","patch":ops,"status":st}
    if st>=400: e["message"]=r["message"]; e["causes"]=[c.get("message") for c in r.get("details",{}).get("causes",[])] 
    else: e["result"]={"data":r.get("data"),"finalizers":r["metadata"].get("finalizers")}
    out.append(e)
T=lambda **k:[k]
for ops in [T(op="add",path="/data/c",value="3"),T(op="remove",path="/data/x"),T(op="remove",path="/data/a"),T(op="replace",path="/data/x",value="1"),T(op="replace",path="/x/y",value="1"),T(op="add",path="/x/y",value="1"),T(op="test",path="/data/a",value="2"),T(op="test",path="/data/a",value="1"),T(op="test",path="/data/zz",value=None),T(op="test",path="/zz/zz",value="1"),T(op="test",path="/data/zz",value="1"),T(op="move",path="/data/c",**{"from":"/data/a"}),T(op="copy",path="/data/c",**{"from":"/data/a"}),T(op="copy",path="/data/c",**{"from":"/data/zz"}),T(op="move",path="/data/c",**{"from":"/data/zz"}),T(op="move",path="/data/c",**{"from":"/zz/zz"}),T(op="add",path="/metadata/finalizers/5",value="c.example.com/z"),T(op="add",path="/metadata/finalizers/-",value="c.example.com/z"),T(op="add",path="/metadata/finalizers/1",value="c.example.com/z"),T(op="remove",path="/metadata/finalizers/-1"),T(op="remove",path="/metadata/finalizers/7"),T(op="remove",path="/metadata/finalizers/x"),T(op="replace",path="/metadata/finalizers/0",value="c.example.com/z"),T(op="bake",path="/data/a"),T(op="add",value="1"),T(path="/data/a"),{"a":1},"x",[],T(op="replace",path="/data/a"),T(op="add",path="data/q",value="1"),T(op="copy",path="/metadata/finalizers/-",**{"from":"/metadata/finalizers/9"}),T(op="replace",path="/metadata/finalizers/9",value="x")]:
    j(ops)
def s(p):
    p={"spec":{"template":{"spec":p}}}
    st,r=call('PATCH',D+'/pp?dryRun=All',p,'application/strategic-merge-patch+json')
    e={"kind":"Deployment","how":"strategic","patch":p,"status":st}
    if st>=400: e["message"]=r["message"]
    else: e["result"]=r["spec"]["template"]["spec"]
    out.append(e)
for p in [{"containers":[{"name":"a","args":["2"],"env":[{"name":"Z","value":"3"},{"name":"X","value":"9"}]}]},{"containers":[{"name":"c","image":"k"}]},{"containers":[{"name":"a","$patch":"delete"}]},{"containers":[{"$patch":"replace"},{"name":"z","image":"z"}]},{"volumes":[{"name":"v1","$retainKeys":["name","hostPath"],"hostPath":{"path":"/x"}}]},{"volumes":[{"name":"v2","$patch":"replace","hostPath":{"path":"/x"}}]},{"volumes":None},{"nodeSelector":{"q":"r"}},{"nodeSelector":{"x":None,"q":"r"}},{"nodeSelector":{"$patch":"replace","q":"r"}},{"tolerations":[{"key":"t2","operator":"Exists"}]},{"$setElementOrder/containers":[{"name":"b"},{"name":"a"}],"containers":[{"name":"a","image":"new"}]},{"$setElementOrder/containers":[{"name":"b"},{"name":"a"},{"name":"n"}],"containers":[{"name":"n","image":"new"}]},{"containers":[{"name":"a","ports":[{"containerPort":81,"name":"p"},{"containerPort":82}]}]},{"containers":[{"image":"x"}]},{"containers":[5]},{"containers":[{"name":"a","$patch":"bake"}]},{"volumes":[{"name":"v1","$retainKeys":["name"],"hostPath":{"path":"/x"}}]},{"containers":[{"name":"a","env":[{"$patch":"delete","name":"X"}],"$setElementOrder/env":[{"name":"Y"}]}]},{"$setElementOrder/volumes":[{"name":"v2"},{"name":"v1"}]},{"securityContext":{"fsGroup":5}},{"hostname":"h"},{"hostname":None}]: s(p)


def bare(thing):
    for key in ('uid', 'resourceVersion', 'generation', 'creationTimestamp', 'managedFields', 'annotations', 'namespace'):
        thing['metadata'].pop(key, None)
    thing.pop('status', None)
    return json.dumps(thing)


def outcome(case):
    line = {key: case[key] for key in ('kind', 'how', 'patch')}
    if case['status'] < 400:
        line['result'] = case['result']
    else:
        line['code'] = case['status']
        # The reason why a JSON patch cannot be applied is not told.
        if 'the server rejected' not in case['message']:
            line['refused'] = case['message']
    return json.dumps(line, sort_keys=True)


with open(f'{DIRECTORY}/patches.json', 'w') as file:
    file.write('{"ConfigMap": ' + bare(cm) + ',\n"Deployment": ' + bare(dep) + ',\n"cases": [\n'
               + ',\n'.join(outcome(case) for case in out) + '\n]}\n')
call('PATCH', CM + '/pp', {'metadata': {'finalizers': None}}, 'application/merge-patch+json')
call('DELETE', CM + '/pp')
call('DELETE', D + '/pp')
