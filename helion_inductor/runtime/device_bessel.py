"""Modified Bessel functions that libdevice lacks, the spherical Bessel function and the Airy function, for GPU kernels.

Arguments are f32 or f64 blocks or scalars. A function is written as a factor that carries its growth times one that varies
slowly, and the slow one as a series of Chebyshev polynomials on an interval; intervals and factors are those of the Cephes
library (i0.c, i1.c, k0.c, k1.c), for the Airy function those of its asymptotic forms (DLMF 9.7). The coefficients, highest
degree first, were computed with 40 digits (mpmath) by interpolation at 72 Chebyshev nodes and cut off at 1e-17 of the largest
value. Under Triton's interpreter `device_interpret` stands in for this file.
"""

import triton
import triton.language as tl
from triton.language.extra import libdevice

# exp(-x) I0(x), t = x / 4 - 1 for x <= 8
_I0E_NEAR = tl.constexpr((
    3.3307945188222384e-17, -2.431279846547955e-16, 1.715391285555133e-15, -1.1685332877993451e-14, 7.676185498604936e-14,
    -4.856446783111929e-13, 2.95505266312964e-12, -1.726826291441556e-11, 9.675809035373237e-11, -5.189795601635263e-10,
    2.6598237246823866e-09, -1.300025009986248e-08, 6.046995022541919e-08, -2.670793853940612e-07, 1.1173875391201037e-06,
    -4.4167383584587505e-06, 1.6448448070728896e-05, -5.754195010082104e-05, 0.00018850288509584165, -0.0005763755745385824,
    0.0016394756169413357, -0.004324309995050576, 0.010546460394594998, -0.02373741480589947, 0.04930528423967071, -0.09490109704804764,
    0.17162090152220877, -0.3046826723431984, 0.6767952744094761,
))  # fmt: skip
# sqrt(x) exp(-x) I0(x), t = 16 / x - 1 for x >= 8
_I0E_FAR = tl.constexpr((
    4.46562142029676e-17, 3.461222867697461e-17, -2.8276239805165836e-16, -3.425485619677219e-16, 1.7725601330565263e-15,
    3.8116806693526224e-15, -9.554846698828307e-15, -4.150569347287222e-14, 1.54008621752141e-14, 3.8527783827421426e-13,
    7.180124451383666e-13, -1.7941785315068062e-12, -1.3215811840447713e-11, -3.1499165279632416e-11, 1.1889147107846439e-11,
    4.94060238822497e-10, 3.3962320257083865e-09, 2.266668990498178e-08, 2.0489185894690638e-07, 2.8913705208347567e-06,
    6.889758346916825e-05, 0.0033691164782556943, 0.8044904110141088,
))  # fmt: skip
# exp(-x) I1(x) / x, t as for I0
_I1E_NEAR = tl.constexpr((
    -2.111421214358166e-17, 1.5536319577362005e-16, -1.1055969477353862e-15, 7.600684294735408e-15, -5.042185504727912e-14,
    3.223793365945575e-13, -1.9839743977649436e-12, 1.1736186298890901e-11, -6.663489723502027e-11, 3.625590281552117e-10,
    -1.8872497517228294e-09, 9.381537386495773e-09, -4.445059128796328e-08, 2.0032947535521353e-07, -8.568720264695455e-07,
    3.4702513081376785e-06, -1.3273163656039436e-05, 4.781565107550054e-05, -0.00016176081582589674, 0.0005122859561685758,
    -0.0015135724506312532, 0.004156422944312888, -0.010564084894626197, 0.024726449030626516, -0.05294598120809499, 0.1026436586898471,
    -0.17641651835783406, 0.25258718644363365,
))  # fmt: skip
# sqrt(x) exp(-x) I1(x)
_I1E_FAR = tl.constexpr((
    -4.6503053684893586e-17, -3.209525921993424e-17, 2.96262899764595e-16, 3.3082023109209285e-16, -1.8803547755107825e-15,
    -3.8144030724370075e-15, 1.0420276984128802e-14, 4.272440016711951e-14, -2.1015418427726643e-14, -4.0835511110921974e-13,
    -7.198551776245908e-13, 2.0356285441470896e-12, 1.4125807436613782e-11, 3.2526035830154884e-11, -1.8974958123505413e-11,
    -5.589743462196584e-10, -3.835380385964237e-09, -2.6314688468895196e-08, -2.512236237870209e-07, -3.882564808877691e-06,
    -0.00011058893876262371, -0.009761097491361469, 0.7785762350182801,
))  # fmt: skip
# K0(x) + log(x / 2) I0(x), t = x**2 / 2 - 1 for x <= 2
_K0_NEAR = tl.constexpr((
    1.3744654358807508e-16, 4.2598161427910826e-14, 1.0349695257633625e-11, 1.904516377220209e-09, 2.5347910790261494e-07,
    2.286212103119452e-05, 0.001264615411446926, 0.0359799365153615, 0.3442898999246285, -0.5353273932339028,
))  # fmt: skip
# sqrt(x) exp(x) K0(x), t = 4 / x - 1 for x >= 2
_K0_FAR = tl.constexpr((
    5.2103917776435543e-17, -1.6782311257549006e-16, 5.5120559994043335e-16, -1.848593377920907e-15, 6.340076476276646e-15,
    -2.2275133267462965e-14, 8.032890775068375e-14, -2.9800969231481784e-13, 1.1403405882073441e-12, -4.514597883374519e-12,
    1.8559491149549264e-11, -7.957489244477396e-11, 3.5773972814003283e-10, -1.6975345093890614e-09, 8.574034017414225e-09,
    -4.660489897687948e-08, 2.766813639445015e-07, -1.8317555227191195e-06, 1.39498137188765e-05, -0.00012849549581627802,
    0.0015698838857300533, -0.0314481013119645, 2.4403030820659555,
))  # fmt: skip
# x (K1(x) - log(x / 2) I1(x)), t as for K0
_K1_NEAR = tl.constexpr((
    -2.427449850519366e-15, -6.666901694199329e-13, -1.4114883926335278e-10, -2.213387630734726e-08, -2.4334061415659684e-06,
    -0.0001730288957513052, -0.006975723859639864, -0.12261118082265715, -0.3531559607765449, 1.5253002273389478,
))  # fmt: skip
# sqrt(x) exp(x) K1(x)
_K1_FAR = tl.constexpr((
    -5.689462849193648e-17, 1.8380935752430455e-16, -6.057047270643018e-16, 2.038703166239861e-15, -7.0198370892147685e-15,
    2.4771544242195988e-14, -8.976705182010146e-14, 3.348419666052243e-13, -1.2891739609498229e-12, 5.139639673482343e-12,
    -2.129967838427791e-11, 9.218315187605315e-11, -4.1903547593419254e-10, 2.0150497551970347e-09, -1.0345762465678097e-08,
    5.7410841254500495e-08, -3.5019606030878126e-07, 2.406484947837217e-06, -1.936197974166083e-05, 0.00019521551847135162,
    -0.002857816859622779, 0.10392373657681724, 2.7206261904844427,
))  # fmt: skip
# Ai(x), t = (x + 1.25) / 2.75 for -4 <= x <= 1.5
_AI_NEAR = tl.constexpr((
    1.6948840756631524e-17, 4.882442063187916e-17, -1.0586503368156003e-15, 4.3440965771110615e-15, 1.709060882153457e-14,
    -2.6438549187276335e-13, 8.530224527535549e-13, 4.449538060162258e-12, -5.082652215366297e-11, 1.2216859966027943e-10,
    8.483026705538652e-10, -7.235819124333837e-09, 1.1788102410833891e-08, 1.1441674334711526e-07, -7.237089815018968e-07,
    6.502875779786541e-07, 1.0325178435349397e-05, -4.714295379966581e-05, 9.870930572381317e-06, 0.0005707252903380311,
    -0.0017760188326624462, -0.00077759342701863, 0.016621845041010466, -0.031178925598614963, -0.03229049530657721,
    0.18694748055949711, -0.14694724388242159, -0.22904419045088142, 0.2353799429728744, 0.14854174203005424,
))  # fmt: skip
# 2 sqrt(pi) x**(1/4) exp(z) Ai(x), z = 2/3 x**(3/2), t = 2 z(1.5) / z - 1 for x >= 1.5
_AI_FAR = tl.constexpr((
    -2.8662533411515464e-17, 7.253937490810167e-17, -1.8591002635202005e-16, 4.828427626993385e-16, -1.271795632653484e-15,
    3.400224741055721e-15, -9.23607275842995e-15, 2.551612130924603e-14, -7.177997941402771e-14, 2.05888857337351e-13,
    -6.030606978495685e-13, 1.8069244818591273e-12, -5.549279906384467e-12, 1.7508908330772233e-11, -5.6910431087836814e-11,
    1.9118037464979788e-10, -6.663623292302786e-10, 2.4214253709501665e-09, -9.228212412678121e-09, 3.71670649926353e-08,
    -1.5978444018868888e-07, 7.432694286651159e-07, -3.814039707573835e-06, 2.223027857676703e-05, -0.00015445535442993937,
    0.0014022222549226902, -0.020862474405707418, 1.9551077017116896,
))  # fmt: skip
# Ai(-x) = (cos(z - pi/4) P + sin(z - pi/4) Q / z) / (sqrt(pi) x**(1/4)): P, then Q, t = 2 (z(4) / z)**2 - 1 for x >= 4
_AI_COS = tl.constexpr((
    -6.709077463464858e-17, 2.4632810885752603e-16, -9.523976784907064e-16, 3.902945148540815e-15, -1.708757321110567e-14,
    8.071678110741467e-14, -4.16552889201035e-13, 2.386927411492466e-12, -1.5518841909929856e-11, 1.1794620737908535e-10,
    -1.0938736172758127e-09, 1.3216283888528755e-08, -2.316269813501758e-07, 7.181193774368645e-06, -0.0006216836584374116,
    1.9987417781485557,
))  # fmt: skip
_AI_SIN = tl.constexpr((
    1.7706787947400164e-18, -5.206129581838458e-18, 1.5773435797781153e-17, -4.9375274403528065e-17, 1.6016711026585234e-16,
    -5.403040541409308e-16, 1.9032114367198917e-15, -7.03448211263258e-15, 2.7441377308322258e-14, -1.1378513792256329e-13,
    5.059047237872084e-13, -2.43852975710829e-12, 1.2923809452698712e-11, -7.672290975115024e-11, 5.232285376834493e-10,
    -4.247731732954726e-09, 4.327537342298499e-08, -6.014071912908298e-07, 1.3174151014089972e-05, -0.0006089151840832694,
    0.13764341112616002,
))  # fmt: skip


@triton.jit
def _series(t, coefficients: tl.constexpr):
    """c0 / 2 + c1 T1(t) + c2 T2(t) + ..., -1 <= t <= 1, by Clenshaw's recurrence (DLMF 3.11(ii))."""
    double = t + t
    value = tl.zeros_like(t)
    next1 = value
    next2 = value
    for k in tl.static_range(len(coefficients.value)):
        # In f32 the highest terms are lost anyway.
        if t.dtype == tl.float64 or coefficients[k] * coefficients[k] > 1e-20:
            next2 = next1
            next1 = value
            value = double * next1 - next2 + coefficients[k]
    return 0.5 * (value - next2)


# ---- exponentially scaled, of the first kind


@triton.jit
def i0e(x):
    """exp(-|x|) I0(x)."""
    size = tl.abs(x)
    near = _series(tl.minimum(size, 8.0) * 0.25 - 1.0, _I0E_NEAR)
    far = _series(16.0 / tl.maximum(size, 8.0) - 1.0, _I0E_FAR) * libdevice.rsqrt(size)
    return tl.where(size != size, x, tl.where(size <= 8.0, near, far))


@triton.jit
def i1e(x):
    """exp(-|x|) I1(x)."""
    size = tl.abs(x)
    near = _series(tl.minimum(size, 8.0) * 0.25 - 1.0, _I1E_NEAR) * x
    far = _series(16.0 / tl.maximum(size, 8.0) - 1.0, _I1E_FAR) * libdevice.rsqrt(size)
    far = tl.where(x < 0, -far, far)
    return tl.where(size != size, x, tl.where(size <= 8.0, near, far))


# ---- of the second kind


@triton.jit
def _k0_near(x):
    small = tl.minimum(x, 2.0)
    return _series(0.5 * small * small - 1.0, _K0_NEAR) - libdevice.log(0.5 * small) * libdevice.cyl_bessel_i0(small)


@triton.jit
def _k0_far_scaled(x):
    return _series(4.0 / tl.maximum(x, 2.0) - 1.0, _K0_FAR) * libdevice.rsqrt(x)


@triton.jit
def _k1_near(x):
    small = tl.minimum(x, 2.0)
    slow = _series(0.5 * small * small - 1.0, _K1_NEAR)
    return libdevice.log(0.5 * small) * libdevice.cyl_bessel_i1(small) + slow / small


@triton.jit
def _k1_far_scaled(x):
    return _series(4.0 / tl.maximum(x, 2.0) - 1.0, _K1_FAR) * libdevice.rsqrt(x)


@triton.jit
def _second_kind(x, near, far):
    """Infinite at 0, NaN for negative numbers; `near` up to 2, `far` beyond."""
    value = tl.where(x <= 2.0, near, far)
    value = tl.where(x == 0, float("inf"), value)
    return tl.where((x < 0) | (x != x), float("nan"), value)


@triton.jit
def modified_bessel_k0(x):
    return _second_kind(x, _k0_near(x), _k0_far_scaled(x) * libdevice.exp(-x))


@triton.jit
def scaled_modified_bessel_k0(x):
    """exp(x) K0(x)."""
    return _second_kind(x, _k0_near(x) * libdevice.exp(tl.minimum(x, 2.0)), _k0_far_scaled(x))


@triton.jit
def modified_bessel_k1(x):
    return _second_kind(x, _k1_near(x), _k1_far_scaled(x) * libdevice.exp(-x))


@triton.jit
def scaled_modified_bessel_k1(x):
    """exp(x) K1(x)."""
    return _second_kind(x, _k1_near(x) * libdevice.exp(tl.minimum(x, 2.0)), _k1_far_scaled(x))


# ---- spherical, and Airy's


@triton.jit
def spherical_bessel_j0(x):
    """sin(x) / x; 1 at 0, 0 at infinity."""
    square = x * x
    near = 1.0 - square / 6.0 * (1.0 - square / 20.0)
    value = tl.where(tl.abs(x) < 0.005, near, libdevice.sin(x) / x)
    return tl.where(tl.abs(x) == float("inf"), 0.0, value)


@triton.jit
def _sine_cosine(phase):
    """Of an f64 phase, each in f64; f32 functions call it too, because a great phase has few digits left in f32."""
    return libdevice.sin(phase), libdevice.cos(phase)


@triton.jit
def airy_ai(x):
    """Airy's function Ai; NaN at the infinities, as eager has it (the limit is 0)."""
    size = tl.abs(x)
    near = _series(tl.minimum(tl.maximum(x, -4.0), 1.5) * 0.36363636363636365 + 0.45454545454545453, _AI_NEAR)

    large = tl.maximum(size, 1.5)
    zeta = 0.6666666666666666 * large * tl.sqrt(large)
    falling = 0.5641895835477563 * libdevice.rsqrt(tl.sqrt(large))  # 1 / (sqrt(pi) x**(1/4))
    right = 0.5 * falling * libdevice.exp(-zeta) * _series(2.449489742783178 / zeta - 1.0, _AI_FAR)

    wide = tl.maximum(size, 4.0)
    phase = 0.6666666666666666 * wide.to(tl.float64) * tl.sqrt(wide.to(tl.float64))
    sine, cosine = _sine_cosine(phase - 0.7853981633974483)
    inverse = 1.0 / phase.to(x.dtype)
    square = 56.888888888888886 * inverse * inverse - 1.0
    left = cosine.to(x.dtype) * _series(square, _AI_COS) + sine.to(x.dtype) * inverse * _series(square, _AI_SIN)
    left = 0.5641895835477563 * libdevice.rsqrt(tl.sqrt(wide)) * left

    value = tl.where(x > 1.5, right, tl.where(x < -4.0, left, near))
    return tl.where(size < float("inf"), value, float("nan"))
