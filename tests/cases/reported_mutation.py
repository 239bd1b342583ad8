"""In-place updates, aliasing and the order of effects."""

from __future__ import annotations

import torch

from tests.cases.case_kit import T, case, ri, rn


@case(
    "mut_copy_then_mutate_src",
    "pytorch/pytorch#198131",
    "dst gets src's value from before src is updated in place",
    lambda d: (torch.zeros(3, 4, device=d), rn(3, 4, device=d)),
    "equal",
    "mutation ordering noop-copy",
)
def _(dst, src):
    dst[:, 0:] = src[:, 0:]
    src.mul_(3)
    return src + 0


@case(
    "mut_foreach_self_flip",
    "pytorch/pytorch#198033",
    "foreach in-place add whose other operand is a permutation of the same tensor",
    lambda d: (rn(64, 33, device=d),),
    "equal",
    "mutation foreach race horizontal",
)
def _(x):
    torch._foreach_add_([x], [x.flip(0)])
    return x


@case(
    "mut_index_put_then_flip_add",
    "pytorch/pytorch#198270",
    "index_put_ then in-place add of a reversed read of the same tensor",
    lambda d: (rn(16, 40, device=d),),
    "equal",
    "mutation index_put race",
)
def _(x):
    rows = torch.arange(x.shape[0], device=x.device)
    x.index_put_((rows,), x + 1)
    x.add_(x.flip(0))
    return x


@case(
    "mut_copy_transpose_of_self",
    "pytorch/pytorch#198280",
    "x.copy_(transposed function of x): copy-back must not fuse with the transposed read",
    lambda d: (rn(3000, 5, 5, device=d),),
    "equal",
    "mutation loop-order race",
)
def _(x):
    x.copy_(x.mT * 2.0)
    return x


@case(
    "mut_shift_within_self",
    "pytorch/pytorch#198270",
    "overlapping self copy via clone (x[1:] = x[:-1].clone())",
    lambda d: (rn(1025, 7, device=d),),
    "equal",
    "mutation overlap race",
)
def _(x):
    x[1:] = x[:-1].clone()
    return x * 1


@case(
    "mut_read_then_inplace_log",
    "pytorch/pytorch#94777",
    "result computed before x.log_() must not see the new x",
    lambda d: (T([3.0, 7.5], d),),
    "allclose",
    "mutation ordering",
)
def _(x):
    y = torch.log(x)
    x.log_()
    return y


@case(
    "mut_view_across_graph_break",
    "pytorch/pytorch#97083",
    "a view made before data-dependent control flow keeps aliasing its base",
    lambda d: (T([5], d, torch.int64),),
    "equal",
    "mutation alias graph-break",
)
def _(s):
    base = s.clone()
    alias = base[0:1].squeeze()
    base[0] = 1
    if base.sum() < 100:
        base[0] = 9
    return alias


@case(
    "mut_write_into_expanded",
    "pytorch/pytorch#152425",
    "writing one element of an expanded tensor changes every element (shared storage)",
    lambda d: (T([1.0], d),),
    "equal",
    "mutation expand upstream-open",
)
def _(x):
    row = (x + 0)[0].expand(6)
    row[-1] = 3
    return row * 1


@case(
    "idx_put_dup_rmw",
    "pytorch/pytorch#174074",
    "x[[0,0]] += x[[0,0]] reads the ORIGINAL row once (no compounding)",
    lambda d: (rn(3, 5, device=d),),
    "equal",
    "index_put duplicate rmw",
)
def _(x):
    x[[0, 0]] += x[[0, 0]]
    return x


@case(
    "idx_put_dup_rmw_tensor",
    "pytorch/pytorch#138908",
    "same with a duplicated tensor index computed in-graph",
    lambda d: (ri(-6, -5, (1, 3), device=d), rn(4, 9, device=d)),
    "equal",
    "index_put duplicate rmw",
)
def _(i, y):
    i = i + 7
    y[i] += y[i]
    return y


@case(
    "scatter_nonpow2_mask",
    "pytorch/pytorch#178871",
    "scatter-sum of (x+scalar) with non-power-of-2 length: padded lanes must not add",
    lambda d: (rn(37, 1, device=d), T([0.25], d), torch.zeros(37, dtype=torch.int64, device=d)),
    "allclose",
    "scatter mask tail",
)
def _(x, b, i):
    src = x + b
    return x.new_zeros(1, 1).scatter_reduce(0, i[:, None], src, "sum", include_self=True)


@case(
    "mut_aliased_inputs",
    "pytorch/pytorch#113793",
    "two inputs that alias the same storage; write through one, read the other",
    lambda d: (lambda b: (b, b[2:5]))(rn(8, 3, device=d)),
    "allclose",
    "mutation alias-inputs",
)
def _(base, view):
    view.mul_(2)
    return base.sum(0), view + 1


@case(
    "mut_foreach_views_of_one_base",
    "pytorch/pytorch#119436",
    "in-place foreach over several views of one tensor",
    lambda d: (rn(4, 6, device=d), rn(6, seed=1, device=d)),
    "equal",
    "mutation foreach alias horizontal",
)
def _(x, y):
    torch._foreach_add_([x[0], x[1], x[3]], [y, y * 2, y * 3])
    torch._foreach_mul_([x[1], x[3]], 0.5)
    return x


@case(
    "mut_lerp_state_then_read",
    "pytorch/pytorch#183575",
    "optimizer-like: momentum lerp_ then param add_(momentum); state must survive buffer reuse",
    lambda d: tuple(rn(48, 48, seed=i, device=d) for i in range(5)),
    "allclose",
    "mutation optimizer buffer-reuse",
    rtol=2e-2,
    atol=2e-2,
)
def _(p1, p2, x, m1, m2):
    y = (x.bfloat16() @ p1.bfloat16()).float()
    g1 = (x.bfloat16().t() @ y.bfloat16()).float() / 50
    g2 = (y.bfloat16().t() @ x.bfloat16()).float() / 50
    m1.lerp_(g1, 0.05)
    m2.lerp_(g2, 0.05)
    p1.add_(m1, alpha=-0.01)
    p2.add_(m2, alpha=-0.01)


@case(
    "mut_unsqueeze_inplace",
    "pytorch/pytorch#93259",
    "metadata-only in-place op on an intermediate",
    lambda d: (rn(5, device=d),),
    "equal",
    "mutation metadata",
)
def _(x):
    y = x * 2
    y.unsqueeze_(0)
    return y


@case(
    "mut_side_stream",
    "pytorch/pytorch#197416",
    "input mutated on a side stream, then joined: caller's stream must see it",
    lambda d: (torch.zeros(1 << 20, device=d), torch.ones(4, device=d)),
    "equal",
    "streams mutation",
    cuda_only=True,
)
def _(x, s):
    st = torch.cuda.Stream()
    st.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(st):
        x.add_(1)
    torch.cuda.current_stream().wait_stream(st)
    return s + 1


@case(
    "out_not_overwritten",
    "pytorch/pytorch#104435",
    "output of call k stays intact after call k+1 and may be fed back in",
    lambda d: (rn(33, 5, device=d),),
    "allclose",
    "buffers cudagraph",
    calls=4,
)
def _(x):
    return x + 1, (x * 2).sum(0)


@case(
    "mixed_device_nodes",
    "pytorch/pytorch#168067",
    "independent CPU and device work in one graph must not be grouped into one kernel",
    lambda d: (rn(100), rn(64, 3, device=d)),
    "allclose",
    "combo mixed-device",
)
def _(c, g):
    return c.sin() + 1, g.cos() * 2, c.abs().sum(), g.amax(1)
