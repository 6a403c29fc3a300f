#!/bin/bash
# Pretrained networks in place of a training: what a file is, features of images, clusters of them,
# new images; and everything that must be refused in one line.
set -u
conr=$(realpath "$1")
golden=$(realpath "$(dirname "$0")/../golden")
command -v python3 >/dev/null || exit 77
. "$(dirname "$0")/expect.sh"

# Three classes of 20 images, told apart by their brightness; a small DINOv2 and a CLIP with random
# weights; broken ones.
python3 - "$golden/vit.json" <<'P'
import json, math, os, random, struct, sys, zlib
rng = random.Random(5)
def png(path, level):
    chunk = lambda t, d: struct.pack('>I', len(d)) + t + d + struct.pack('>I', zlib.crc32(t + d))
    rows = b''.join(b'\0' + bytes(min(255, level + rng.randrange(40)) for _ in range(60)) for _ in range(24))
    open(path, 'wb').write(b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', struct.pack('>IIBBBBB', 20, 24, 8, 2, 0, 0, 0)) +
                           chunk(b'IDAT', zlib.compress(rows)) + chunk(b'IEND', b''))
for c, name in enumerate(['ant', 'bee', 'cat']):
    os.makedirs(f'photos/{name}')
    for i in range(20):
        png(f'photos/{name}/{i:02}.png', 90 * c)
def write(path, tensors):
    head, data = {}, b''
    for name, shape, scale, mean in tensors:
        new = struct.pack(f'<{math.prod(shape)}f', *(mean + scale * rng.uniform(-1, 1) for _ in range(math.prod(shape))))
        head[name] = {'dtype': 'F32', 'shape': shape, 'data_offsets': [len(data), len(data) + len(new)]}
        data += new
    text = json.dumps(head).encode()
    open(path, 'wb').write(struct.pack('<Q', len(text)) + text + data)
models = {m['title']: m['tensors'] for m in json.load(open(sys.argv[1]))['models']}
dino = models['Hugging Face, DINOv2']
write('dino.safetensors', dino)
write('other.safetensors', dino)
write('clip.safetensors', models['open_clip'])
write('missing.safetensors', [t for t in dino if t[0] != 'encoder.layer.1.norm2.weight'])
write('shallow.safetensors', [t for t in dino if 'layer.0.' not in t[0]])
write('more.safetensors', dino + [['encoder.layer.1.rope', [4], 1, 0]])
write('nan.safetensors', [t[:3] + [math.nan] if t[0] == 'layernorm.bias' else t for t in dino])
whole = open('dino.safetensors', 'rb').read()
open('cut.safetensors', 'wb').write(whole[:len(whole) // 2])
open('text.safetensors', 'w').write('these are no weights\n')
write('flat.safetensors', [t[:2] + [0, 0] if t[0] == 'layernorm.weight' else t for t in dino])
write('resnet.safetensors', [['conv1.weight', [64, 3, 7, 7], 1, 0]])
# A ResNet-18 of width 8 under torchvision's names, and the same numbers under Hugging Face's
def norm(name, c):
    return [[f'{name}.weight', [c], 0.2, 1], [f'{name}.bias', [c], 0.2, 0], [f'{name}.running_mean', [c], 0.2, 0],
            [f'{name}.running_var', [c], 0.2, 1]]
net = [['conv1.weight', [8, 3, 7, 7], 0.2, 0]] + norm('bn1', 8)
for s in range(4):
    for b in range(2):
        co, ci = 8 << s, 8 << s if b or not s else 4 << s
        at = f'layer{s + 1}.{b}'
        net += [[f'{at}.conv1.weight', [co, ci, 3, 3], 0.2, 0]] + norm(f'{at}.bn1', co)
        net += [[f'{at}.conv2.weight', [co, co, 3, 3], 0.2, 0]] + norm(f'{at}.bn2', co)
        if ci != co:
            net += [[f'{at}.downsample.0.weight', [co, ci, 1, 1], 0.2, 0]] + norm(f'{at}.downsample.1', co)
def hugging(name):
    p = name.split('.')
    if p[0] in ('conv1', 'bn1'):
        return 'embedder.embedder.' + {'conv1': 'convolution', 'bn1': 'normalization'}[p[0]] + '.' + p[1]
    head = f'encoder.stages.{int(p[0][5:]) - 1}.layers.{p[1]}.'
    if p[2] == 'downsample':
        return head + 'shortcut.' + ('convolution', 'normalization')[int(p[3])] + '.' + p[4]
    return head + f'layer.{int(p[2][-1]) - 1}.' + ('convolution', 'normalization')[p[2][0] == 'b'] + '.' + p[3]
state = rng.getstate()
write('torch18.safetensors', net)
rng.setstate(state)
write('hf18.safetensors', [[hugging(t[0])] + t[1:] for t in net])
net50, wide = [['conv1.weight', [4, 3, 7, 7], 0.2, 0]] + norm('bn1', 4), 4
for s, n in enumerate((3, 4, 6, 3)):
    for b in range(n):
        at, mid = f'layer{s + 1}.{b}', 4 << s
        for i, (co, ci, k) in enumerate([(mid, wide, 1), (mid, mid, 3), (4 * mid, mid, 1)], 1):
            net50 += [[f'{at}.conv{i}.weight', [co, ci, k, k], 0.2, 0]] + norm(f'{at}.bn{i}', co)
        if not b:
            net50 += [[f'{at}.downsample.0.weight', [4 * mid, wide, 1, 1], 0.2, 0]] + norm(f'{at}.downsample.1', 4 * mid)
        wide = 4 * mid
write('torch50.safetensors', net50)
write('short18.safetensors', [t for t in net if t[0] != 'layer2.1.bn2.bias'])
P

says "DINOv2" info dino.safetensors
says "short side to 80 pixels (bicubic), the center 70 x 70" info dino.safetensors
says '"family": "CLIP"' info clip.safetensors --json
says '"features": 40' info clip.safetensors --json
refused 2 "is a network" info dino.safetensors --paths
for f in missing shallow more nan cut text resnet; do
    case $f in
    missing) why="has no tensor 'encoder.layer.1.norm2.weight'" ;;
    shallow) why="no network that is known" ;;
    more) why="'encoder.layer.1.rope'" ;;
    nan) why="'layernorm.bias' holds NaN" ;;
    cut) why="cut.safetensors" ;;
    text) why="text.safetensors" ;;
    resnet) why="no network that is known" ;;
    esac
    refused 1 "$why" embed photos --encoder $f.safetensors --out x.npy
    refused 1 "$why" cluster photos --encoder $f.safetensors --clusters 3 --out x
    [ -e x ] || [ -e x.npy ] && complain "$f: something was written"
done

# Features: both spellings give the same bits, settings others, threads none.
ok embed photos --encoder dino.safetensors --out a.npy
ok embed dino.safetensors photos --out b.npy
cmp -s a.npy b.npy || complain "embed: the two spellings differ"
timeout -s KILL 60 "$conr" embed dino.safetensors photos --out b.npy --quiet --threads 1 || complain "embed on one thread"
cmp -s a.npy b.npy || complain "embed: one and two threads differ"
ok embed photos --encoder dino.safetensors --encoder-set size=42 --encoder-set pool=mean --out b.npy
cmp -s a.npy b.npy && complain "embed: settings change nothing"
says '"d": 40' embed photos --encoder clip.safetensors --out c.npy --json

# A run, and new images.
ok cluster photos --encoder dino.safetensors --clusters 3 --method kmeans --out run
has run labels.csv embeddings.npy centroids.npy options.yaml report.html DONE
grep -q "encoder: .*/dino.safetensors" run/options.yaml || complain "options.yaml does not name the weights"
grep -q "dino.safetensors" run/report.html || complain "the report does not name the weights"
grep -q '"event":"encoder"' run/log.jsonl || complain "the log lacks the comparison with the descriptor"
says "through the pretrained network" info run
ok assign run photos --out again.csv
cmp -s <(cut -d, -f1,2 run/labels.csv) <(cut -d, -f1,2 again.csv) || complain "assign differs from the run"
ok embed run photos --out e.npy
ok cluster run --clusters 4 --method kmeans --out run4
ok assign run4 photos --out again4.csv
cmp -s <(cut -d, -f2 run4/labels.csv) <(cut -d, -f2 again4.csv) || complain "assign differs from the run clustered again"
ok cluster photos --encoder dino.safetensors --encoder-set size=42 --clusters 3 --refine none --method kmeans --out small
ok assign small photos --out small.csv
cmp -s <(cut -d, -f2 small/labels.csv) <(cut -d, -f2 small.csv) || complain "assign does not prepare images as the run did"
ok cluster small --clusters 4 --out small4
ok embed small photos --out small.npy
ok embed small4 photos --out small4.npy
cmp -s small.npy small4.npy || complain "a run clustered again prepares images otherwise"
mv dino.safetensors moved.safetensors
refused 1 "are gone; give them with --encoder" assign run photos --out x.csv
ok assign run photos --encoder moved.safetensors --out moved.csv
cmp -s again.csv moved.csv || complain "assign differs with moved weights"
refused 1 "is not the file that the run was made with" assign run photos --encoder other.safetensors --out x.csv
cp other.safetensors dino.safetensors
refused 1 "is not the file that the run was made with" assign run photos --out x.csv
mv moved.safetensors dino.safetensors
says "takes" info run

# A network that gives nothing is told from one that does.
"$conr" cluster photos --encoder flat.safetensors --clusters 3 --threads 2 --refine none --out warned >out 2>err
grep -q "ViT-128x2/14 (Hugging Face names), 128 features" err || complain "the network is not shown: $(cat err)"
grep -q "look untrained.*NMI 1.000" err || complain "no warning: $(cat err)"
grep -q '"descriptor_wins":true' warned/log.jsonl || complain "the log does not say who wins"
grep -q '"descriptor_wins":false' run/log.jsonl || complain "features that tell the classes apart lose"

# ResNets: both namings are one network, whatever its images are prepared by.
says "resnet18 of width 8" info torch18.safetensors
says "short side to 256 pixels (bilinear), the center 224 x 224" info torch18.safetensors
says "(bicubic), the center 224 x 224" info hf18.safetensors
ok embed photos --encoder torch18.safetensors --encoder-set size=48 --encoder-set filter=bicubic --out t.npy
ok embed photos --encoder hf18.safetensors --encoder-set size=48 --out h.npy
cmp -s t.npy h.npy || complain "embed: the two namings of a ResNet differ"
ok cluster photos --encoder torch18.safetensors --encoder-set size=48 --clusters 3 --out run18
ok assign run18 photos --out again18.csv
cmp -s <(cut -d, -f1,2 run18/labels.csv) <(cut -d, -f1,2 again18.csv) || complain "assign differs from the run of a ResNet"
refused 1 "layer2.1.bn2.bias" embed photos --encoder short18.safetensors --out x.npy
refused 1 "this is a ResNet" embed photos --encoder torch18.safetensors --encoder-set pool=mean --out x.npy

# --train goes on from a ResNet: the network is that of the file, and a training that learns nothing
# leaves its weights as they are.
few="--clusters 3 --set epochs=2 --set stage1_epochs=1 --set batch=12 --set size=32 --set hidden=16 --set features=8"
ok cluster photos --encoder torch50.safetensors --train $few --set restarts=1 --out trained
has trained labels.csv model.safetensors report.html DONE
for line in "encoder: resnet50" "stem: imagenet" "width: 4"; do
    grep -q "^$line" trained/options.yaml || complain "--train: options.yaml lacks '$line'"
done
ok assign trained photos --out trained.csv
cmp -s <(cut -d, -f1,2 trained/labels.csv) <(cut -d, -f1,2 trained.csv) || complain "assign differs from the run of --train"
ok cluster photos --encoder hf18.safetensors --train $few --set lr=0 --set decay=0 --out still
ok export still --out still.safetensors
ok export trained --out trained.safetensors
python3 - <<'P' || complain "--train does not start from the weights of the file, or does not train them"
import json, struct
def weights(path, name):
    raw = open(path, 'rb').read()
    n = struct.unpack('<Q', raw[:8])[0]
    a, b = json.loads(raw[8:8 + n])[name]['data_offsets']
    return raw[8 + n + a:8 + n + b]
name = 'layer3.1.conv2.weight'
assert weights('still.safetensors', name) == weights('torch18.safetensors', name)
assert weights('trained.safetensors', name) != weights('torch50.safetensors', name)
P
refused 1 "holds no ResNet" cluster photos --encoder dino.safetensors --train $few --out x
refused 1 "layer2.1.bn2.bias" cluster photos --encoder short18.safetensors --train $few --out x
rm -rf x # an empty folder
refused 2 "give --encoder" cluster photos --train $few --out x
refused 2 "leave it out" cluster photos --encoder torch50.safetensors --train $few --set width=8 --out x
refused 2 "use --set" cluster photos --encoder torch50.safetensors --train --encoder-set size=32 $few --out x
refused 2 "is a run" cluster run --encoder torch50.safetensors --train $few --out x

# Exported as ONNX, a network gives the same features (NumPy runs the file); what cannot be exported.
for python in python3 /usr/bin/python3; do
    "$python" -c 'import numpy' 2>/dev/null || continue
    "$python" "$golden/../scripts/check_encoders.py" "$conr" --few >out 2>&1 || complain "export: $(cat out)"
    break
done
says '"size": 64,' export clip.safetensors --encoder-set size=64 --out clip.onnx --json
says '"settings": "size=70 resize=80 filter=bicubic' export dino.safetensors --out dino.onnx --json
refused 2 "is a safetensors file already" export dino.safetensors --out x.safetensors
refused 2 "a pretrained network has none" export dino.safetensors --projector --out x.onnx
refused 2 "is for a pretrained network" export run --encoder-set size=70 --out x.onnx
refused 1 "no multiple of the patches" export dino.safetensors --encoder-set size=71 --out x.onnx
refused 1 "has no tensor 'encoder.layer.1.norm2.weight'" export missing.safetensors --out x.onnx
refused 1 "layer2.1.bn2.bias" export short18.safetensors --out x.onnx
refused 1 "dino.safetensors" export dino.safetensors --format onnx --out dino.safetensors
[ -e x.onnx ] && complain "export: something was written"

refused 2 "leave one of them out" cluster photos --encoder dino.safetensors --features a.npy --clusters 3 --out x
refused 2 "give SRC, too" cluster --encoder dino.safetensors --clusters 3 --out x
refused 2 "is a run" cluster run --encoder dino.safetensors --clusters 3 --out x
refused 2 "give --encoder" cluster photos --encoder-set size=70 --clusters 3 --out x
refused 2 "is not KEY=VALUE" cluster photos --encoder dino.safetensors --encoder-set size --clusters 3 --out x
refused 2 "leave it out with --encoder" cluster photos --encoder dino.safetensors --budget 1m --clusters 3 --out x
refused 2 "SRC: is missing" embed photos --out x.npy
refused 2 "a network already" embed dino.safetensors photos --encoder dino.safetensors --out x.npy
refused 1 "no such setting" embed photos --encoder dino.safetensors --encoder-set color=1 --out x.npy
refused 1 "no multiple of the patches" embed photos --encoder dino.safetensors --encoder-set size=71 --out x.npy
refused 1 "nothing.safetensors" embed photos --encoder nothing.safetensors --out x.npy
ok cluster photos --features hog --clusters 3 --out hog
refused 1 "was not made with a pretrained network" assign hog photos --encoder dino.safetensors --out x.csv
refused 1 "dino.safetensors" embed photos --encoder dino.safetensors --out dino.safetensors

# Ctrl-C: exit 130, and nothing that looks finished; the same command then goes through.
timeout --preserve-status -s INT 0.5 "$conr" cluster photos --encoder dino.safetensors --encoder-set size=1792 --clusters 3 --threads 2 --out stopped >out 2>err
got=$?
[ "$got" = 130 ] || complain "stopped: exit $got: $(cat err)"
[ -e stopped/DONE ] && complain "stopped: looks finished"
ok cluster photos --encoder dino.safetensors --clusters 3 --out stopped

[ "$failures" = 0 ] || { echo "$failures failures"; exit 1; }
