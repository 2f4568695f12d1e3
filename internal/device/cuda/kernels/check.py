#!/usr/bin/env python3
"""Checks and times the kernels on a GPU, against PyTorch in double precision.

The launches are those that the Go planner made, with its packed parameter
blocks, so planning and packing are checked along with the kernels:

    go test ./internal/device/cuda/kernels -run TestCases -cases=FILE
    python3 check.py FILE [--out REPORT] [--no-time] [--only WORD]

Every operator runs on random data; its outputs are compared with a reference,
bit for bit where the operator's arithmetic is fixed. It runs twice and must
leave the same bits; all other bytes of the arena must be as they were; the
counters must be 0 again. Times are of graph replays, with enough copies of the
operands that they do not stay in the second-level cache where they would not in
a step. Exit status 1 if anything is wrong.
"""
import argparse, ctypes, json, math, os, statistics, sys, time
import numpy as np
import torch
import torch.nn.functional as F

cuda = ctypes.CDLL("libcuda.so.1")
DTYPES = {"f32": torch.float32, "f16": torch.float16, "u8": torch.uint8, "i32": torch.int32}
LR, SCALE, NON_FINITE, SKIP, STEP, GROWTH, SKIPPED, CONSECUTIVE, STOP, FAULT = range(10)


def call(name, *args):
    code = getattr(cuda, name)(*args)
    if code != 0:
        raise RuntimeError(f"{name}: {code}")


class Kernels:
    """The modules of one target, and launches of their kernels."""

    def __init__(self, folder, suffix):
        self.modules, self.functions, self.load_s = {}, {}, {}
        for f in sorted(os.listdir(folder)):
            if f.endswith(".cu"):
                with open(os.path.join(folder, f[:-3] + suffix), "rb") as h:
                    text = h.read() + b"\0"
                m = ctypes.c_void_p()
                t = time.perf_counter()
                call("cuModuleLoadData", ctypes.byref(m), ctypes.c_char_p(text))
                self.load_s[f] = time.perf_counter() - t
                self.modules[f[:-3]] = m

    def function(self, module, name):
        if name not in self.functions:
            f = ctypes.c_void_p()
            call("cuModuleGetFunction", ctypes.byref(f), self.modules[module], name.encode())
            self.functions[name] = f
        return self.functions[name]

    def launch(self, module, name, grid, block, shared, params, dependent=False):
        buffer = ctypes.create_string_buffer(bytes(params), max(len(params), 1))
        size = ctypes.c_size_t(len(params))
        extra = (ctypes.c_void_p * 5)(1, ctypes.addressof(buffer), 2, ctypes.addressof(size), 0)
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        if not dependent:
            call("cuLaunchKernel", self.function(module, name), *[ctypes.c_uint(v) for v in (*grid, *block, shared)], stream, None, extra)
            return

        class Attribute(ctypes.Structure):
            _fields_ = [("id", ctypes.c_int), ("pad", ctypes.c_int), ("value", ctypes.c_int * 16)]

        class Config(ctypes.Structure):
            _fields_ = [("dims", ctypes.c_uint * 6), ("shared", ctypes.c_uint), ("stream", ctypes.c_void_p), ("attrs", ctypes.c_void_p), ("count", ctypes.c_uint)]

        attr = Attribute(id=6)  # programmatic stream serialization
        attr.value[0] = 1
        config = Config((ctypes.c_uint * 6)(*grid, *block), shared, stream, ctypes.addressof(attr), 1)
        call("cuLaunchKernelEx", ctypes.byref(config), self.function(module, name), None, extra)


counters = None  # device memory, zeros


def blocks_of(case, base):
    """The packed parameter blocks of a case with an arena at base."""
    out = []
    for l in case["launches"]:
        b = bytearray.fromhex(l["params"])
        for r in l["relocs"] or []:
            at = counters.data_ptr() + r["off"] if r.get("counter") else base + r["off"]
            b[r["at"] : r["at"] + 8] = int(at).to_bytes(8, "little")
        out.append(b)
    return out


def submit(kernels, case, blocks, which=None, dependent=False):
    for i, (l, b) in enumerate(zip(case["launches"], blocks)):
        if which is None or i == which:
            kernels.launch(l["module"], l["kernel"], l["grid"], l["block"], l["shared"], b, dependent)


def view(arena, o):
    return arena[o["off"] : o["off"] + o["bytes"]].view(DTYPES[o["dtype"]]).view(o["shape"] or [])


def gen(seed):
    g = torch.Generator(device="cuda")
    g.manual_seed(seed)
    return g


def rand(o, g, scale=1.0, offset=0.0):
    return (torch.randn(o["shape"], generator=g, device="cuda") * scale + offset).to(DTYPES[o["dtype"]])


def scalars(**words):
    v = np.zeros(10, np.float32)
    v[LR], v[SCALE], v[FAULT] = 0.05, 1024.0, 0.25
    i = v.view(np.int32)
    for k, x in words.items():
        w = globals()[k]
        if w in (LR, SCALE, FAULT):
            v[w] = x
        else:
            i[w] = x
    return torch.from_numpy(v.copy()).cuda()


def f32(x):
    return float(np.float32(x))


def attr(case, name):
    return case["attr"][name]


# Each operator: inputs(case, g, variant) gives the inputs' tensors by name,
# want(case, t) the outputs' by name, as (tensor, tolerance): tolerance 0 is
# equality of numbers (NaN equals NaN). In-place outputs have their input's name.
class Op:
    variants = [None]
    tolerance = {"f32": 2e-5, "f16": 1e-3}

    def inputs(self, case, g, variant):
        out = {}
        for o in case["in"]:
            if o["name"] == "scalars":
                out[o["name"]] = scalars()
            else:
                out[o["name"]] = rand(o, g)
        return out

    def exact(self, case, got):
        return {}

    def tol(self, case):
        return self.tolerance[case["in"][0]["dtype"]]


def nchw(x):
    return x.double().permute(0, 3, 1, 2)


def nhwc(x):
    return x.permute(0, 2, 3, 1)


class Conv(Op):
    def inputs(self, case, g, variant):
        out = {o["name"]: rand(o, g) for o in case["in"]}
        return out

    def want(self, case, t):
        a = case["attr"]
        kw = dict(stride=a["Stride"], padding=a["Pad"])
        if case["op"] == "conv":
            return {"y": (nhwc(F.conv2d(nchw(t["x"]), nchw(t["w"]), **kw)), self.tol(case))}
        if case["op"] == "conv_bwd_data":
            n, h, w, c = case["out"][0]["shape"]
            return {"dx": (nhwc(torch.nn.grad.conv2d_input((n, c, h, w), nchw(t["w"]), nchw(t["dy"]), **kw)), self.tol(case))}
        k, r, s, c = case["out"][0]["shape"]
        return {"dw": (nhwc(torch.nn.grad.conv2d_weight(nchw(t["x"]), (k, c, r, s), nchw(t["dy"]), **kw)), self.tol(case))}


class FC(Op):
    def want(self, case, t):
        d = {k: v.double() for k, v in t.items()}
        if case["op"] == "fc":
            return {"y": (d["x"] @ d["w"].T + d["b"], self.tol(case))}
        if case["op"] == "fc_bwd_data":
            return {"dx": (d["dy"] @ d["w"], self.tol(case))}
        return {"dw": (d["dy"].T @ d["x"], self.tol(case)), "db": (d["dy"].sum(0), 2e-5)}


def bits(case, y):
    """The mask of y: bit j of byte i is of element i*run+j."""
    mask = next(o for o in case["in"] + case["out"] if o["name"] == "mask")
    run = y.numel() // math.prod(mask["shape"])
    weight = 2 ** torch.arange(run, device="cuda", dtype=torch.int32)
    return ((y > 0).view(-1, run).int() * weight).sum(1).to(torch.uint8).view(mask["shape"])


class Norm(Op):
    variants = ["plain", "offset", "infinite"]

    def inputs(self, case, g, variant):
        t = {}
        for o in case["in"]:
            t[o["name"]] = rand(o, g)
        c = case["in"][0]["shape"][3]
        # Channels of very different spread and mean, one of them constant.
        spread = torch.logspace(-1, 1, c, device="cuda")
        mean = torch.randn(c, generator=g, device="cuda") * spread * (10 if variant == "offset" else 1)
        spread[0] = 0
        t["x"] = (t["x"].float() * spread + mean).to(t["x"].dtype)
        if variant == "infinite":
            t["x"].view(-1, c)[0, c // 2] = float("inf")
            t["x"].view(-1, c)[-1, c - 1] = float("nan")
        return t

    def want(self, case, t):
        a, x = case["attr"], t["x"].double()
        c = x.shape[-1]
        x2 = x.view(-1, c)
        n = x2.shape[0]
        mean, var = x2.mean(0), x2.var(0, unbiased=False)
        inv = (var + f32(a["Eps"])).rsqrt()
        y = (x - mean) * inv * t["gamma"].double() + t["beta"].double()
        if a["Add"]:
            y = y + t["z"].double()
        if a["ReLU"]:
            y = torch.where(y <= 0, torch.zeros_like(y), y)
        unbiased = var * (n / max(n - 1, 1)) if a["Unbiased"] else var
        # A constant channel's deviation is rounding: its y is compared loosely.
        return {"y": (y, self.tol(case)), "mean": (mean, 1e-5), "invstd": (inv, 2e-5), "statMean": (mean, 1e-5), "statVar": (unbiased, 2e-5)}

    def exact(self, case, got):
        """What follows bit for bit from other outputs: values near 0 fall to either side of it."""
        return {"mask": bits(case, got("y"))} if case["attr"]["Mask"] else {}


class NormBwd(Op):
    variants = ["plain", "infinite"]

    def inputs(self, case, g, variant):
        t = {o["name"]: rand(o, g) for o in case["in"]}
        x = t["x"].double().view(-1, t["x"].shape[-1])
        t["mean"] = x.mean(0).float()
        t["invstd"] = (x.var(0, unbiased=False) + 1e-5).rsqrt().float()
        if "y" in t:
            t["y"] = torch.where(t["y"] < 0, torch.zeros_like(t["y"]), t["y"])
        if "mask" in t:
            t["mask"] = bits(case, torch.randn(t["x"].shape, generator=g, device="cuda"))
        if variant == "infinite":
            t["dy"].view(-1)[3] = float("inf")
        return t

    def want(self, case, t):
        a = case["attr"]
        x, g, c = t["x"].double(), t["dy"].double(), t["x"].shape[-1]
        if a["Sum"]:
            g = (t["dy"].float() + t["dy2"].float()).to(t["dy"].dtype).double()
        if a["ReLU"]:
            on = t["y"] > 0 if "y" in t else None
            if on is None:
                run = x.numel() // t["mask"].numel()
                on = (t["mask"].view(-1, 1).int() >> torch.arange(run, device="cuda", dtype=torch.int32) & 1).bool().view(x.shape)
            g = torch.where(on, g, torch.zeros_like(g))
        mean, inv, gamma = t["mean"].double(), t["invstd"].double(), t["gamma"].double()
        xhat = (x - mean) * inv
        n = x.numel() // c
        dbeta, dgamma = g.view(-1, c).sum(0), (g * xhat).view(-1, c).sum(0)
        dx = gamma * inv * (g - dbeta / n - xhat * dgamma / n)
        out = {"dx": (dx, self.tol(case)), "dgamma": (dgamma, 2e-5), "dbeta": (dbeta, 2e-5)}
        if a["Add"]:
            out["dz"] = (g.to(t["dy"].dtype), 0)
        return out


class Stem(Op):
    """Blocks of pixels: image and filter are padded to whole blocks and cut."""

    def geometry(self, case):
        a = case["attr"]
        s, before = a["Stride"], -(-a["Pad"] // a["Stride"]) * a["Stride"]  # pixels before pixel 0
        return s, before, before - a["Pad"]  # and taps before tap 0

    def cut(self, t, first, s, like):
        n, h, w, c = t.shape
        rows, cols = like["shape"][1] * s, like["shape"][2] * s
        out = torch.zeros(n, max(rows, first + h), max(cols, first + w), c, device="cuda", dtype=t.dtype)
        out[:, first : first + h, first : first + w] = t
        out = out[:, :rows, :cols].reshape(n, rows // s, s, cols // s, s, c).permute(0, 1, 3, 2, 4, 5).reshape(n, rows // s, cols // s, s * s * c)
        return F.pad(out, (0, like["shape"][3] - s * s * c))

    def want(self, case, t):
        s, pixels, taps = self.geometry(case)
        out = {o["name"]: o for o in case["out"]}
        if "dw" in out:
            k, r = out["dw"]["shape"][:2]
            d = t["weights"][..., : 3 * s * s]
            b = d.shape[1]
            d = d.reshape(k, b, b, s, s, 3).permute(0, 1, 3, 2, 4, 5).reshape(k, b * s, b * s, 3)
            return {"dw": (d[:, taps : taps + r, taps : taps + r], 0)}
        want = {"image": (self.cut(t["x"], pixels, s, out["image"]), 0)}
        if "weights" in out:
            want["weights"] = (self.cut(t["w"], taps, s, out["weights"]), 0)
        return want


class Affine(Op):
    def want(self, case, t):
        a = case["attr"]
        y = t["x"].float() * t["scale"]
        y = y + t["bias"]
        if a["Add"]:
            y = y + t["z"].float()
        if a["ReLU"]:
            y = torch.where(y <= 0, torch.zeros_like(y), y)
        return {"y": (y.to(t["x"].dtype), 0)}


def sprinkle(x, g):
    """Some NaN, Inf and both zeros."""
    if x.dtype not in (torch.float32, torch.float16):
        return x
    r = torch.rand(x.shape, generator=g, device="cuda")
    for lo, v in ((0, float("nan")), (0.05, float("inf")), (0.1, -float("inf")), (0.15, 0.0), (0.2, -0.0)):
        x = torch.where((r >= lo) & (r < lo + 0.05), torch.full_like(x, v), x)
    return x


class Point(Op):
    def inputs(self, case, g, variant):
        return {k: sprinkle(v, g) for k, v in super().inputs(case, g, variant).items()}

    def want(self, case, t):
        dt = DTYPES[case["out"][0]["dtype"]]
        if case["op"] == "relu":
            return {"y": (torch.where(t["x"] <= 0, torch.zeros_like(t["x"]), t["x"]), 0)}
        if case["op"] == "relu_bwd":
            return {"dx": (torch.where(t["y"] > 0, t["dy"], torch.zeros_like(t["dy"])), 0)}
        return {"y": ((t["a"].float() + t["b"].float()).to(dt), 0)}


def taps(case, image, fill):
    """For each tap of a pooling window: its code and image's values there."""
    a = case["attr"]
    n, h, w, c = image.shape
    oh, ow = (h + 2 * a["Pad"] - a["R"]) // a["Stride"] + 1, (w + 2 * a["Pad"] - a["R"]) // a["Stride"] + 1
    i, j = torch.arange(oh, device="cuda"), torch.arange(ow, device="cuda")
    for r in range(a["R"]):
        for s in range(a["R"]):
            y, x = i * a["Stride"] - a["Pad"] + r, j * a["Stride"] - a["Pad"] + s
            ok = ((y >= 0) & (y < h))[:, None] & ((x >= 0) & (x < w))[None, :]
            yield r * a["R"] + s, y.clamp(0, h - 1), x.clamp(0, w - 1), ok


class MaxPool(Op):
    variants = ["numbers", "special"]

    def inputs(self, case, g, variant):
        x = case["in"][0]
        v = (torch.randint(-3, 4, x["shape"], generator=g, device="cuda")).to(DTYPES[x["dtype"]])  # ties
        if variant == "numbers":
            v[0] = -float("inf")  # the padding must not win
            return {"x": v}
        return {"x": sprinkle(v, g)}

    def want(self, case, t):
        x = t["x"]
        best = index = None
        for code, yy, xx, ok in taps(case, x, 0):
            v = x[:, yy][:, :, xx]
            if best is None:
                best, index = torch.full_like(v, 0), torch.full(v.shape, 255, dtype=torch.uint8, device="cuda")
            take = ok[None, :, :, None] & ((index == 255) | (v > best) | (v.isnan() & ~best.isnan()))
            best, index = torch.where(take, v, best), torch.where(take, torch.full_like(index, code), index)
        return {"y": (best, 0), "index": (index, 0)}


class MaxPoolBwd(Op):
    def inputs(self, case, g, variant):
        image = {"in": [dict(case["out"][0], name="x")], "attr": case["attr"]}
        index = MaxPool().want(case, MaxPool().inputs(image, g, None))["index"][0]
        return {"dy": rand(case["in"][0], g), "index": index}

    def want(self, case, t):
        o = case["out"][0]
        dx = torch.zeros(o["shape"], device="cuda", dtype=torch.float64)
        n, h, w, c = o["shape"]
        for code, yy, xx, ok in taps(case, dx, 0):
            d = torch.where((t["index"] == code) & ok[None, :, :, None], t["dy"].double(), torch.zeros((), device="cuda", dtype=torch.float64))
            at = (yy[:, None] * w + xx[None, :]).reshape(-1)
            dx.view(n, h * w, c).index_add_(1, at, d.reshape(n, -1, c))
        return {"dx": (dx, self.tol(case))}


class AvgPool(Op):
    def want(self, case, t):
        if case["op"] == "avg_pool":
            return {"y": (t["x"].double().mean((1, 2)), self.tol(case))}
        n, h, w, c = case["out"][0]["shape"]
        return {"dx": ((t["dy"].double() / (h * w))[:, None, None, :].expand(n, h, w, c), self.tol(case))}


class Loss(Op):
    variants = ["plain", "large", "broken"]

    def inputs(self, case, g, variant):
        n, k = case["in"][0]["shape"]
        t = {"logits": rand(case["in"][0], g, 100 if variant == "large" else 3)}
        t["labels"] = torch.randint(0, k, (n,), generator=g, device="cuda", dtype=torch.int32)
        hot = torch.rand(n, generator=g, device="cuda") < 0.5
        t["labels"] = torch.where(hot, t["logits"].float().argmax(1).int(), t["labels"])
        if variant == "broken":
            t["labels"][1], t["labels"][2] = k, -1
            t["logits"][4, 3] = float("nan")
        if case["op"] == "loss":
            t["scalars"] = scalars()
            t["step"] = torch.tensor([0.5, 3.0, 7.0, 8.0], device="cuda")
        return t

    def want(self, case, t):
        z, labels = t["logits"].double(), t["labels"].long()
        n, k = z.shape
        smooth = f32(case["attr"]["Smoothing"])
        ok = (labels >= 0) & (labels < k)
        lab = labels.clamp(0, k - 1)
        top = z.max(1, keepdim=True).values
        lp = z - top - (z - top).exp().sum(1, keepdim=True).log()
        target = F.one_hot(lab, k).double() * (1 - smooth) + smooth / k
        loss = -(target * lp).sum(1)
        loss = torch.where(ok, loss, torch.full_like(loss, float("nan")))
        mean = loss.mean()
        own = z.gather(1, lab[:, None])
        j = torch.arange(k, device="cuda")[None, :]
        miss = ~(z < own) & ((j < lab[:, None]) | ~(z == own))
        hits = (~miss.any(1) & ok).sum().double()
        if case["op"] == "loss":
            d = (lp.exp() - target) * (1024.0 / n)
            d = torch.where(ok[:, None], d, torch.full_like(d, float("nan")))
            step = t["step"].double().clone()
            step[0] += mean
            step[1] += hits
            return {"dlogits": (d, self.tol(case)), "step": (step, 1e-6)}
        s = case["attr"]["Slot"]
        step = torch.full((4,), float("nan"), device="cuda", dtype=torch.float64)
        step[2 * s], step[2 * s + 1] = mean, hits
        return {"step": (step, 1e-6)}


class Normalize(Op):
    def inputs(self, case, g, variant):
        return {"u": torch.randint(0, 256, case["in"][0]["shape"], generator=g, device="cuda", dtype=torch.uint8)}

    def want(self, case, t):
        a = case["attr"]
        u = np.arange(256, dtype=np.float32)
        table = np.stack([(u / np.float32(255) - np.float32(m)) * np.float32(s) for m, s in zip(a["Mean"], a["InvStd"])])
        flat = t["u"].view(-1).long()
        c = torch.arange(flat.numel(), device="cuda") % 3
        return {"x": (torch.from_numpy(table).cuda()[c, flat].to(DTYPES[case["out"][0]["dtype"]]).view(t["u"].shape), 0)}


class Inject(Op):
    """g is an output that is read: it is given a value by prepare."""

    def inputs(self, case, g, variant):
        return {"scalars": scalars(FAULT=float("inf") if variant else 0.25)}

    variants = [0, 1]

    def prepare(self, case, arena):
        view(arena, case["out"][0]).fill_(1.5)

    def want(self, case, t):
        g = torch.full(case["out"][0]["shape"], 1.5, device="cuda", dtype=DTYPES[case["out"][0]["dtype"]])
        g.view(-1)[0] += t["scalars"][FAULT].item()
        return {"g": (g, 0)}


class Cast(Op):
    def inputs(self, case, g, variant):
        o = case["in"][0]
        bits = torch.randint(0, 256, (o["bytes"],), generator=g, device="cuda", dtype=torch.uint8)
        x = bits.view(DTYPES[o["dtype"]])
        if o["dtype"] == "f32":
            near = torch.randn(x.shape, generator=g, device="cuda") * 1e-5  # subnormal halves
            x = torch.where(torch.rand(x.shape, generator=g, device="cuda") < 0.5, near, x)
            x[:4] = torch.tensor([65519.0, 65520.0, -65520.0, 2.0**-25], device="cuda")
        return {"src": x.view(o["shape"])}

    def want(self, case, t):
        return {"dst": (t["src"].to(DTYPES[case["out"][0]["dtype"]]), 0)}


class FiniteCheck(Op):
    variants = ["finite", "first", "middle", "last"]

    def inputs(self, case, g, variant):
        self.variant = variant
        x = rand(case["in"][0], g)
        at = {"first": 0, "middle": x.numel() // 2, "last": -1}
        if variant != "finite":
            x[at[variant]] = float("inf") if variant == "middle" else float("nan")
        return {"g": x}

    def prepare(self, case, arena):
        view(arena, case["out"][0]).copy_(scalars(NON_FINITE=5))

    def want(self, case, t):
        return {"scalars": (scalars(NON_FINITE=0 if self.variant == "finite" else 1), 0)}


class Update(Op):
    """Operators whose arithmetic is fixed: unscale, averages, SGD, LARS, chain."""

    variants = ["go", "skip"]

    def inputs(self, case, g, variant):
        t = {o["name"]: rand(o, g) for o in case["in"]}
        if "scalars" in t:
            t["scalars"] = scalars(SKIP=int(variant == "skip"), SCALE=48.0)
        return t

    def want(self, case, t):
        a, op = case["attr"], case["op"]
        skip = "scalars" in t and t["scalars"].view(torch.int32)[SKIP].item() != 0
        if op == "unscale":
            return {"g": (t["g"] * f32(np.float32(1) / np.float32(48)), 0)}
        if op == "chain":
            return {"b": (t["a"] * 0.5 + 1, 0)}
        if op in ("ema", "update_stats"):
            d = np.float32(a["Decay"]) if op == "ema" else np.float32(1) - np.float32(a["Momentum"])
            e = np.float32(1) - np.float32(a["Decay"]) if op == "ema" else np.float32(a["Momentum"])
            y, x = ("ema", "w") if op == "ema" else ("running", "stats")
            new = t[y] * float(d) + t[x] * float(e)
            return {y: (t[y] if skip else new, 0)}
        if skip:
            return {"w": (t["w"], 0), "v": (t["v"], 0)}
        w, v, g = t["w"].clone(), t["v"].clone(), t["g"]
        spans = [(0, w.numel(), 1.0)]
        if op == "lars":
            spans = []
            for s in a["Spans"]:
                ww, gg = w[s["Off"] : s["Off"] + s["Len"]].double().norm(), g[s["Off"] : s["Off"] + s["Len"]].double().norm()
                spans.append((s["Off"], s["Len"], f32((f32(a["Trust"]) * ww / (gg + f32(a["Decay"]) * ww)).item())))
        for off, n, ratio in spans:
            x, b = w[off : off + n], v[off : off + n]
            d = (g[off : off + n] + x * f32(a["Decay"])) * ratio
            m = b * f32(a["Momentum"]) + d
            b.copy_(m)
            if a["Nesterov"]:
                m = d + m * f32(a["Momentum"])
            x.sub_(m * f32(0.05))
        tol = 1e-6 if op == "lars" else 0
        return {"w": (w, tol), "v": (v, tol)}


class Control(Op):
    variants = list(range(12))

    def inputs(self, case, g, variant):
        r = np.random.default_rng(variant)
        words = dict(STEP=int(r.integers(0, 8)), GROWTH=int(r.integers(0, 4)), SKIPPED=int(r.integers(0, 9)), CONSECUTIVE=int(r.integers(0, 5)))
        words.update(NON_FINITE=int(r.random() < 0.5), STOP=int(r.random() < 0.3), SKIP=int(r.random() < 0.5))
        words.update(SCALE=[1024.0, 2.0**-16, 2.0**24, 1.5][variant % 4])
        return {"table": rand(case["in"][0], g), "scalars": scalars(**words)}

    def want(self, case, t):
        a = case["attr"]["Control"]
        out = t["scalars"].clone()
        i = out.view(torch.int32)
        w = [int(v) for v in i.tolist()]
        out[LR] = t["table"][min(w[STEP], a["Rates"] - 1)]
        i[STEP] += 1
        scale = out[SCALE].item()
        if w[NON_FINITE] or w[STOP]:
            i[SKIP], i[GROWTH] = 1, 0
            i[SKIPPED] += 1
            i[CONSECUTIVE] += 1
            if a["Dynamic"] and w[NON_FINITE]:
                out[SCALE] = max(scale * 0.5, 2.0**-16)
            if a["StopAfter"] > 0 and w[CONSECUTIVE] + 1 >= a["StopAfter"]:
                i[STOP] = 1
        else:
            i[SKIP], i[CONSECUTIVE] = 0, 0
            i[GROWTH] += 1
            if a["Dynamic"] and w[GROWTH] + 1 >= a["GrowthInterval"]:
                out[SCALE] = min(scale * 2, 2.0**24)
                i[GROWTH] = 0
        return {"scalars": (i, 0)}


class Infer(Op):
    def inputs(self, case, g, variant):
        t = super().inputs(case, g, variant)
        t["running"] = t["running"].abs() + 0.01
        return t

    def want(self, case, t):
        out = torch.full(case["out"][0]["shape"], float("nan"), device="cuda", dtype=torch.float64)
        p, r = t["params"].double(), t["running"].double()
        for n in case["attr"]["Norms"]:
            c = n["C"]
            s = p[n["Gamma"] : n["Gamma"] + c] / (r[n["Var"] : n["Var"] + c] + f32(case["attr"]["Eps"])).sqrt()
            out[n["Scale"] : n["Scale"] + c] = s
            out[n["Bias"] : n["Bias"] + c] = p[n["Beta"] : n["Beta"] + c] - r[n["Mean"] : n["Mean"] + c] * s
        return {"inf": (out, 1e-6)}


class Accum(Op):
    def prepare(self, case, arena):
        view(arena, case["out"][0]).copy_(torch.arange(6.0, device="cuda"))

    def want(self, case, t):
        m = torch.arange(6.0, device="cuda")
        count = case["attr"]["Count"]
        for s in range(case["attr"]["Slots"]):
            m[3 * s] += t["step"][2 * s] * count
            m[3 * s + 1] += t["step"][2 * s + 1]
            m[3 * s + 2] += count
        return {"metrics": (m, 0)}


class Copy(Op):
    def inputs(self, case, g, variant):
        return {"from": torch.randint(-99, 99, case["in"][0]["shape"], generator=g, device="cuda", dtype=torch.int32)}

    def want(self, case, t):
        return {"to": (t["from"], 0)}


class Zero(Op):
    def want(self, case, t):
        return {o["name"]: (torch.zeros(o["shape"], device="cuda"), 0) for o in case["out"]}


OPS = {
    "conv": Conv(), "conv_bwd_data": Conv(), "conv_bwd_filter": Conv(), "fc": FC(), "fc_bwd_data": FC(), "fc_bwd_filter": FC(),
    "batch_norm": Norm(), "batch_norm_bwd": NormBwd(), "affine": Affine(), "relu": Point(), "relu_bwd": Point(), "add": Point(),
    "max_pool": MaxPool(), "max_pool_bwd": MaxPoolBwd(), "avg_pool": AvgPool(), "avg_pool_bwd": AvgPool(), "loss": Loss(), "loss_eval": Loss(),
    "normalize": Normalize(), "inject": Inject(), "cast": Cast(), "finite_check": FiniteCheck(), "unscale": Update(), "ema": Update(),
    "update_stats": Update(), "chain": Update(), "sgd": Update(), "lars": Update(), "control": Control(), "bn_infer": Infer(), "accum": Accum(),
    "copy_labels": Copy(), "zero": Zero(), "stem_blocks": Stem(), "stem_image": Stem(), "stem_filter": Stem(),
}


def fill(case, arena, t, op):
    arena.fill_(0xFF)
    for o in case["in"]:
        view(arena, o).copy_(t[o["name"]])
    if hasattr(op, "prepare"):
        op.prepare(case, arena)


def compare(got, want, tol, dtype):
    """'' or what is wrong. tol bounds the error against the largest number."""
    if dtype is not None and want.dtype == torch.float64 and dtype == torch.float16:
        want = torch.where(want.abs() >= 65520, torch.copysign(torch.full_like(want, float("inf")), want), want)
    if got.dtype != want.dtype and tol == 0 and want.dtype == torch.int32:
        got = got.view(torch.int32)
    g, w = got.double().reshape(-1), want.double().reshape(-1)
    if not torch.equal(g.isnan(), w.isnan()):
        bad = (g.isnan() != w.isnan()).nonzero()
        return f"{len(bad)} of {g.numel()} disagree on NaN, first at {bad[0].item()}: {g[bad[0]].item()} want {w[bad[0]].item()}"
    finite = w.isfinite()
    if not torch.equal(g[~finite & ~w.isnan()], w[~finite & ~w.isnan()]):
        return "infinities differ"
    g, w = g[finite], w[finite]
    if g.numel() == 0:
        return ""
    if tol == 0:
        bad = (g != w).nonzero()
        return f"{len(bad)} of {g.numel()} differ, first {g[bad[0]].item()!r} want {w[bad[0]].item()!r}" if len(bad) else ""
    norm = ((g - w).norm() / w.norm().clamp_min(1e-30)).item() if w.norm() > 0 else (g - w).norm().item()
    worst = ((g - w).abs() / (w.abs() + w.abs().max() * 0.1 + 1e-30)).max().item()
    if not (norm <= tol) or not (worst <= 20 * tol):
        return f"relative error {norm:.2e} (largest {worst:.2e}), at most {tol:.0e}"
    return ""


def check(kernels, case, quick):
    op = OPS[case["op"]]
    wrong = []
    for k, variant in enumerate(op.variants[:1] if quick else op.variants):
        t = op.inputs(case, gen(1000 + k), variant)
        arena = torch.empty(case["arena"], dtype=torch.uint8, device="cuda")
        fill(case, arena, t, op)
        before = arena.clone()
        blocks = blocks_of(case, arena.data_ptr())
        submit(kernels, case, blocks)
        torch.cuda.synchronize()
        first = arena.clone()
        fill(case, arena, t, op)
        arena[case["scratch"]["off"] : case["scratch"]["off"] + case["scratch"]["bytes"]] = 0x5A
        submit(kernels, case, blocks)
        torch.cuda.synchronize()
        outs = case["out"] + [case["scratch"]]
        mask = torch.ones(case["arena"], dtype=torch.bool, device="cuda")
        for o in outs:
            mask[o["off"] : o["off"] + o["bytes"]] = False
        if not torch.equal(first[mask], before[mask]):
            at = ((first != before) & mask).nonzero()[0].item()
            wrong.append(f"{variant}: byte {at} outside the outputs changed")
        mask[: case["scratch"]["off"]] = True
        if not torch.equal(first[: case["scratch"]["off"]], arena[: case["scratch"]["off"]]):
            wrong.append(f"{variant}: the second run gave other bits")
        if counters.any():
            wrong.append(f"{variant}: counters are not 0")
            counters.zero_()
        want = op.want(case, t)
        for name, w in op.exact(case, lambda name: view(first, next(o for o in case["out"] if o["name"] == name))).items():
            want[name] = (w, 0)
        for o in case["out"]:
            w, tol = want[o["name"]]
            got = view(first, o)
            if o["name"] == "scalars" and case["op"] == "control":
                got = got.view(torch.int32)
            if variant == "infinite" and o["name"] == "dx":
                # Which elements of a ruined channel are NaN and which Inf is rounding's choice.
                c = w.shape[-1]
                clean = w.reshape(-1, c).isfinite().all(0)
                if got.reshape(-1, c)[:, ~clean].isfinite().all(0).any():
                    wrong.append(f"{variant}: dx of a ruined channel is finite")
                got, w = got.reshape(-1, c)[:, clean], w.reshape(-1, c)[:, clean]
            why = compare(got, w, tol, got.dtype)
            if why:
                wrong.append(f"{variant}: {o['name']}: {why}")
    return wrong


def replay_us(make, per, least=5):
    """Median time of a graph of per operators, for one operator, in us."""
    g = torch.cuda.CUDAGraph()
    s = torch.cuda.Stream()
    with torch.cuda.stream(s):
        make()
        s.synchronize()
        with torch.cuda.graph(g, stream=s):
            make()
        g.replay()
        s.synchronize()
        times = []
        for _ in range(least):
            a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            a.record(s)
            g.replay()
            b.record(s)
            s.synchronize()
            times.append(a.elapsed_time(b) * 1e3 / per)
    return statistics.median(times)


def timed(kernels, case):
    op = OPS[case["op"]]
    copies = int(max(1, min(12, 400e6 // case["arena"])))
    g = gen(5)
    arenas, blocks = [], []
    for i in range(copies):
        arena = torch.empty(case["arena"], dtype=torch.uint8, device="cuda")
        if i == 0:
            arena.fill_(0)
            for o in case["in"]:
                if o["name"] == "scalars":
                    view(arena, o).copy_(scalars())
                elif o["dtype"] == "u8":
                    view(arena, o).copy_(torch.randint(0, 9, o["shape"], generator=g, device="cuda", dtype=torch.uint8))
                elif o["dtype"] == "i32":
                    view(arena, o).copy_(torch.randint(0, 10, o["shape"], generator=g, device="cuda", dtype=torch.int32))
                else:
                    view(arena, o).copy_(rand(o, g))
        else:
            arena.copy_(arenas[0])
        arenas.append(arena)
        blocks.append(blocks_of(case, arena.data_ptr()))
    reps = copies * max(1, (24 if case["arena"] < 3e8 else 4) // copies)
    row = {"name": case["name"], "floor_mb": case["floor"] / 1e6, "traffic_mb": case["traffic"] / 1e6}
    row["us"] = replay_us(lambda: [submit(kernels, case, blocks[i % copies]) for i in range(reps)], reps)
    row["pdl_us"] = replay_us(lambda: [submit(kernels, case, blocks[i % copies], dependent=True) for i in range(reps)], reps)
    row["parts_us"] = []
    if len(case["launches"]) > 1:
        for k in range(len(case["launches"])):
            row["parts_us"].append(replay_us(lambda: [submit(kernels, case, blocks[i % copies], which=k) for i in range(reps)], reps))
    row["grids"] = [f"{l['kernel']}{l['grid'][:2]}" for l in case["launches"]]
    return row


def probes(kernels):
    wrong = []
    flag = torch.zeros(1, dtype=torch.int32).pin_memory()
    state = torch.zeros(1, dtype=torch.int32, device="cuda")

    def gate(timeout_ns):
        b = b"".join(int(v).to_bytes(8, "little") for v in (flag.data_ptr(), state.data_ptr(), timeout_ns))
        kernels.launch("probe", "gate", (1, 1, 1), (1, 1, 1), 0, b)

    for name, preset, later, timeout, want in (("open", 1, 0, 10**9, 1), ("timeout", 0, 0, 2 * 10**7, 2), ("opened later", 0, 1, 2 * 10**9, 1)):
        flag[0] = preset
        state.zero_()
        torch.cuda.synchronize()
        gate(timeout)
        if later:
            time.sleep(0.02)
            flag[0] = 1
        torch.cuda.synchronize()
        if state.item() != want:
            wrong.append(f"gate {name}: state {state.item()}, want {want}")
    kernels.launch("probe", "empty", (1, 1, 1), (1, 1, 1), 0, b"")
    t = time.perf_counter()
    kernels.launch("probe", "burn", (264, 1, 1), (128, 1, 1), 0, int(20_000_000).to_bytes(8, "little"))
    torch.cuda.synchronize()
    took = time.perf_counter() - t
    if not 0.005 < took < 0.2:
        wrong.append(f"burn of 20 million cycles took {took:.4f} s")
    return wrong


def main():
    p = argparse.ArgumentParser()
    p.add_argument("cases")
    p.add_argument("--out")
    p.add_argument("--no-time", action="store_true")
    p.add_argument("--no-check", action="store_true")
    p.add_argument("--only", default="")
    p.add_argument("--seconds", type=float, default=1e9, help="stop timing after so many")
    a = p.parse_args()
    global counters
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.enabled = False  # references in double run on the plain path
    torch.zeros(1, device="cuda")
    counters = torch.zeros(256, dtype=torch.int32, device="cuda")
    with open(a.cases) as f:
        cases = [c for c in json.load(f) if a.only in c["name"]]
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "cu")
    report = open(a.out, "w") if a.out else None

    def say(line):
        print(line, flush=True)
        if report:
            print(line, file=report, flush=True)

    say(f"{torch.cuda.get_device_name()}, torch {torch.__version__}")
    bad, began = 0, time.perf_counter()
    sets = {}
    for suffix in (".sm90.ptx", ".ptx"):
        sets[suffix] = Kernels(folder, suffix)
        say(f"{suffix}: loaded in " + ", ".join(f"{k} {v:.2f} s" for k, v in sets[suffix].load_s.items()))
    if not a.no_check:
        for suffix, kernels in sets.items():
            t, n = time.perf_counter(), 0
            for why in probes(kernels):
                bad += 1
                say(f"WRONG {suffix} {why}")
            for c in cases:
                if c["time"]:
                    continue
                n += 1
                try:
                    wrong = check(kernels, c, suffix == ".ptx")
                except Exception as e:
                    wrong = [f"{type(e).__name__}: {e}"]
                    if "illegal" in str(e) or ": 7" in str(e):  # the context is gone
                        say(f"WRONG {suffix} {c['name']}: {wrong[0]}")
                        sys.exit(1)
                for why in wrong:
                    bad += 1
                    say(f"WRONG {suffix} {c['name']}: {why}")
            say(f"{suffix}: {n} cases checked in {time.perf_counter() - t:.1f} s, {bad} wrong so far")
    if not a.no_time:
        x = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
        y = torch.empty_like(x)
        us = replay_us(lambda: [y.copy_(x) for _ in range(4)], 4)
        say(f"copy of 1 GiB: {2 * x.numel() / us / 1e6:.3f} TB/s read and written; fill: {x.numel() / replay_us(lambda: [x.zero_() for _ in range(4)], 4) / 1e6:.3f} TB/s")
        ceiling = 4.3e6  # bytes a us, seen for a copy by a kernel
        del x, y
        say(f"{'case':58s} {'us':>8s} {'with PDL':>8s} {'TB/s':>6s} {'floor us':>8s} {'x floor':>7s}  parts us")
        for c in cases:
            if not c["time"] or time.perf_counter() - began > a.seconds:
                continue
            r = timed(sets[".sm90.ptx"], c)
            floor = r["floor_mb"] * 1e6 / ceiling
            say(f"{r['name']:58s} {r['us']:8.2f} {r['pdl_us']:8.2f} {r['traffic_mb'] / r['us']:6.2f} {floor:8.2f} {r['us'] / floor:7.2f}  "
                + " ".join(f"{v:.2f}" for v in r["parts_us"]))
            torch.cuda.empty_cache() if c["arena"] > 1e9 else None
    say(f"{bad} wrong")
    sys.exit(1 if bad else 0)


main()
