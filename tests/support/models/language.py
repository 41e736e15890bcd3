# SPDX-License-Identifier: Apache-2.0
"""TorchScript's language, piece by piece: each adds to a number ``n``."""

from __future__ import annotations

PIECES = """\
n += int(torch.cumsum(torch.tensor([q, 3, 4]), 0)[1])
---
n += int(torch.stack([torch.tensor(q), torch.tensor(5)]).prod())
---
n += int(torch.cat([torch.tensor([q, 3]), torch.tensor([7])]).flip([0])[0])
---
n += int(torch.where(torch.tensor([q, 3]) > 2, torch.tensor([1, 2]), torch.tensor([3, 4])).sum())
---
n += int(torch.tensor([q, 9, 4]).topk(2)[1][0])
---
n += int(torch.tensor([q, 9, 4]).argmax())
---
n += int(torch.max(torch.tensor([q, 9, 4])))
---
n += int(torch.tensor([7.5, -2.5]).round().sum()) + int(torch.tensor([7.5, -2.5]).trunc()[1])
---
n += int(torch.div(torch.tensor(-7), 2, rounding_mode='trunc')) + int(torch.div(torch.tensor(-7), 2, rounding_mode='floor'))
---
n += int(torch.add(torch.tensor(q), 3, alpha=4))
---
n += int(torch.tensor([q, 3, 5, 8]).view(2, 2).t().reshape(-1)[1])
---
n += int(torch.tensor([q, 3, 5, 8]).view(2, 2).max(1)[0].sum())
---
n += int(torch.tensor([0, 3, 0, q]).nonzero().size(0))
---
n += int(torch.clamp(torch.tensor([q, 30]), 2, 7).sum())
---
n += int(torch.tensor([q, 3]).repeat(3)[4])
---
n += int(torch.tensor([q, 3, 4, 5]).split(3)[1].size(0)) + len(torch.tensor([q, 3, 4]).unbind())
---
n += int(torch.tensor([q, 3]).add_(2).mul_(3).sum())
---
n += sorted(a)[0]
---
n += round(2.5)
---
n += round(3.5)
---
n += ord('a')
---
n += len(chr(97))
---
n += len(hex(q))
---
n += len(bin(3))
---
n += len(oct(8))
---
n += divmod(7, 2)[0]
---
n += divmod(-7, 2)[1]
---
n += max(3, 4) + max([1, 2]) + min([1, 2])
---
n += max(3.5, 4)
---
n += 1 if any([True, False]) else 0
---
n += 1 if all([True, False]) else 0
---
n += len(list('abc'))
---
n += len(list(d.keys())) + len(d.values())
---
n += len(s.replace('a', 'bcd'))
---
n += len(s.split(','))
---
n += len(','.join(['a', 'b']))
---
n += s.count('a')
---
n += len(s.title()) + len(s.capitalize())
---
b = a.copy()
b.sort()
n += b[0]
---
b = a.copy()
b.sort(reverse=True)
n += b[0]
---
a.reverse()
n += a[0]
---
n += a.index(1) + a.count(1)
---
a.remove(1)
n += len(a)
---
n += a.pop()
---
n += a.pop(0)
---
n += len(s[1:])
---
n += len(s[::-1])
---
n += (q ^ 1) + (q << 2) + (q >> 1) + (q & 3) + (q | 1)
---
n += 2 ** 3
---
n += 2.0 ** 3
---
n += -7 // 2 + 20 + -7 % 3
---
n += 7 / 2
---
n += abs(-1) + abs(-2.5)
---
n += len(str(q))
---
d.setdefault('p', 1)
n += d['p']
---
n += d.pop('x')
---
n += d.get('zz', 3)
---
for k, v in d.items():
    n += v + len(k)
---
for i, (u, w) in enumerate(zip(a, a)):
    n += i * u * w
---
for i in range(5, 0, -2):
    n += i
---
n += math.sqrt(4.0) + math.floor(2.5) + math.ceil(2.2) + math.pi
---
n += 0 if math.isnan(1.0) else 1
---
n += 0 if math.isinf(1.0) else 1
---
n += math.gcd(4, 6) + math.factorial(3)
---
n += math.fabs(-1.0) + math.fmod(5.0, 3.0) + math.cos(0.0) + math.sin(0.0) + math.tan(0.0)
---
n += math.atan2(0.0, 1.0) + math.degrees(0.0) + math.radians(0.0) + math.copysign(2.0, 1.0)
---
n += math.log(8.0, 2.0)
---
n += int('3') + float('2.5')
---
n += 1 if float('inf') > 1 else 0
---
n += 1 if s.startswith('a') and s.endswith('1') and ('b' in s) else 0
---
n += len(s.strip().upper().lower()) + s.find('b') + s.rfind('b')
---
n += 1 if s.isalpha() or s.isnumeric() or s.islower() or s.isdigit() or s.isspace() else 0
---
n += len('{} {}'.format(3, 'a'))
---
n += len(f'{q} {s}')
---
n += len(s + s)
---
n += 1 if s < 'b' else 0
---
n += len(s.lstrip('a')) + len(s.rstrip('1')) + len(s.ljust(10)) + len(s.center(10)) + len(s.zfill(10))
---
n += len(s.partition(',')[0])
---
n += len(s.splitlines())
---
t = (1, 2.0, 'a')
n += t[0] + t[1]
---
n += 1 if (1, 2) == (1, 2) else 0
---
n += len((1, 2, 3))
---
assert n >= 0, 'bad'
---
z = [[1, 2], [3]]
z[0].extend([4])
n += z[0][-1]
---
w = [i * 2 for i in a]
n += w[0]
---
dd = {k: 1 for k in a}
n += len(dd)
---
dd = {k: v for k, v in d.items()}
n += len(dd)
---
a.extend([5])
a += [6]
del a[0]
n += len(a)
---
a.clear()
n += len(a)
---
a[1] = 9
n += a[1]
---
a[1] += 9
n += a[1]
---
n += len(a[1:3]) + len(a[::2]) + len(a[-2:])
---
n += 0 if x is None else 1
---
sh = list(x.shape)
n += sh[0]
---
sh = x.size()
n += sh[1]
---
h, w = x.shape
n += h * w
---
n += x.numel() + x.dim() + x.ndim + x.size(-1)
---
n += x.stride(0) + x.stride()[1]
---
n += x.element_size()
---
n += 1 if torch.jit.is_scripting() else 0
---
n += 1 if torch.jit.is_tracing() else 2
---
n += 1 if x.dtype == torch.float32 else 2
---
n += 1 if x.device.type == 'cuda' else 1
---
n += 1 if x.requires_grad else 2
---
n += 1 if torch.is_floating_point(x) else 2
---
n += 1 if x.is_floating_point() else 2
---
n += 1 if x.is_complex() else 2
---
n += 1 if torch.is_complex(x) else 2
---
n += 1 if x.is_contiguous() else 2
---
n += 1 if x.is_same_size(x) else 2
---
n += 1 if x.is_sparse or x.is_quantized or x.is_mkldnn else 2
---
n += 1 if isinstance(x, Tensor) else 2
---
o: Optional[int] = None
n += 1 if o is None else o
---
o: Optional[int] = 3
n += o if o is not None else 1
---
u: Union[int, str] = 3
n += u if isinstance(u, int) else 1
---
v = torch.jit.annotate(List[int], [])
n += len(v)
---
v: List[Tensor] = []
n += len(v)
---
e = torch.tensor([1, 2, 3])
n += len(e) + e.size(0)
---
e = torch.tensor(3)
n += int(e)
---
e = torch.tensor(3.5)
n += float(e)
---
e = torch.tensor(3).item()
n += e
---
n += len(x)
---
n += int(x.size(0) * 1.5)
---
n += float(x.size(0))
---
n += 1 if bool(x.size(0)) else 0
---
n += 1 if not False else 0
---
n += 1 if 0 < x.size(0) <= 2 else 5
---
n += 1 if 3 in a else 7
---
n += 1 if 3 not in a else 7
---
n += 1 if a else 7
---
n += 1 if s else 7
---
n += 1 if s == 'ab,c1' and q != 3 or q == 7 else 9
---
n += [1, 2, 3][1] + (4, 5)[0]
---
n += 3 if q > 2 else 4
---
n += sum([1.5, 2.5])
---
n += min(x.shape) + max(x.shape)
---
y0, y1 = x.split(1)
n += y0.size(0)
---
m1, m2 = torch.max(x, 1)
n += m1.size(0)
---
y2 = x.chunk(2)[0]
n += y2.size(0)
---
n += x[0].size(0) + x[:, 1:].size(1) + x[None].dim() + x[..., 0].dim() + x[0, 0].dim()
---
n += x.flatten().size(0) + x.reshape(-1).size(0) + x.view(x.size(0), -1).size(1) + x.T.size(0) + x.mT.size(0)
---
n += x.new_zeros([2, 3]).size(1) + x.new_ones(3).size(0) + torch.zeros_like(x).size(0) + torch.full([2], 1.0).size(0)
---
n += torch.arange(5).size(0) + torch.linspace(0, 1, 4).size(0) + torch.eye(3).size(0)
---
n += torch.numel(x) + torch.nn.functional.relu(x).size(0)
---
n += len([y for y in x.unbind(0)])
---
with torch.no_grad():
    n += 1
---
n += len(torch.unbind(x))
---
with torch.no_grad():
    n += x.size(0)
---
i = 0
while i < 3:
    i += 1
    n += i
---
i = 0
while True:
    i += 1
    if i == 2:
        continue
    if i > 4:
        break
    n += i
"""
METHOD = """
    @torch.jit.export
    def piece_{place}(self, x: Tensor):
        a, s, d, q, n = [3, 1, 1, 2], 'ab,c1', {{'x': 1, 'y': 2}}, sum([3, 4]), 0.0
{piece}
        return torch.zeros([int(n * 8) + 100])
"""
