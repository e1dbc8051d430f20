"""Packages that people run on JAX, on metal: solvers whose loops end by a flag, samplers, physics.

Each is held against what it should find by other means: a root put back into its equation in float64, SciPy's
integrator, a posterior with a closed form, MuJoCo's own C engine; where there is no such thing, the CPU backend.
The packages are the `libraries` extra; a test whose package is missing is skipped and says so.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def on_metal() -> Any:
    with jax.default_device(jax.devices("metal")[0]):
        yield


def _root(y: Any, a: float, xp: Any) -> Any:
    return xp.stack([y[0] ** 2 + y[1] - a, y[0] - y[1] ** 3])


@pytest.mark.parametrize("solver", ["Newton", "LevenbergMarquardt", "Dogleg"])
def test_optimistix_finds_a_root(solver: str) -> None:
    optimistix = pytest.importorskip("optimistix")
    found = optimistix.root_find(
        lambda y, a: _root(y, a, jnp),
        getattr(optimistix, solver)(rtol=1e-5, atol=1e-5),
        jnp.array([1.0, 0.5]),
        args=2.0,
        max_steps=50,
    )
    assert int(found.stats["num_steps"]) < 50
    np.testing.assert_allclose(_root(np.asarray(found.value, np.float64), 2.0, np), 0, atol=1e-4)


def test_optimistix_fixed_point() -> None:
    optimistix = pytest.importorskip("optimistix")
    found = optimistix.fixed_point(
        lambda y, _: jnp.cos(y), optimistix.FixedPointIteration(rtol=1e-5, atol=1e-5), jnp.array(0.5)
    )
    np.testing.assert_allclose(found.value, 0.7390851332151607, atol=1e-4)


def test_optimistix_minimises() -> None:
    optimistix = pytest.importorskip("optimistix")
    target = jnp.arange(3.0)
    found = optimistix.minimise(
        lambda y, _: jnp.sum((y - target) ** 2 + jnp.sin(y)), optimistix.BFGS(rtol=1e-4, atol=1e-5), jnp.zeros(3)
    )
    y = np.asarray(found.value, np.float64)
    np.testing.assert_allclose(2 * (y - np.arange(3.0)) + np.cos(y), 0, atol=1e-3)


def test_diffrax_stiff() -> None:
    """Robertson's kinetics (with milder constants), implicit: a Newton iteration inside every step."""
    diffrax = pytest.importorskip("diffrax")
    from scipy.integrate import solve_ivp

    def reaction(y: Any, xp: Any) -> Any:
        slow, fast = 0.04 * y[0] - 1e2 * y[1] * y[2], 3e3 * y[1] ** 2
        return xp.stack([-slow, slow - fast, fast])

    found = diffrax.diffeqsolve(
        diffrax.ODETerm(lambda t, y, _: reaction(y, jnp)),
        diffrax.Kvaerno5(),
        0.0,
        2.0,
        1e-3,
        jnp.array([1.0, 0.0, 0.0]),
        stepsize_controller=diffrax.PIDController(rtol=1e-4, atol=1e-7),
    )
    exact = solve_ivp(lambda t, y: reaction(y, np), (0, 2), [1.0, 0.0, 0.0], "Radau", rtol=1e-9, atol=1e-12).y[:, -1]
    np.testing.assert_allclose(found.ys[-1], exact, rtol=2e-3, atol=1e-5)


def test_diffrax_explicit_saves_and_differentiates() -> None:
    diffrax = pytest.importorskip("diffrax")
    times = jnp.linspace(0.0, 1.0, 5)

    def solve(rate: jax.Array) -> jax.Array:
        return diffrax.diffeqsolve(
            diffrax.ODETerm(lambda t, y, r: -r * y),
            diffrax.Tsit5(),
            0.0,
            1.0,
            0.1,
            jnp.array([1.0, 2.0]),
            args=rate,
            saveat=diffrax.SaveAt(ts=times),
            stepsize_controller=diffrax.PIDController(rtol=1e-5, atol=1e-6),
        ).ys

    rate, ts = 1.5, np.linspace(0, 1, 5)
    np.testing.assert_allclose(solve(jnp.float32(rate)), np.exp(-rate * ts)[:, None] * [1.0, 2.0], rtol=1e-4)
    slope = jax.grad(lambda r: solve(r)[-1, 1])(jnp.float32(rate))
    np.testing.assert_allclose(slope, -2 * np.exp(-rate), rtol=1e-3)


def test_numpyro_vectorized_chains() -> None:
    """A normal mean with known deviation: the posterior is a normal with known moments."""
    numpyro = pytest.importorskip("numpyro")
    from numpyro import distributions as dist
    from numpyro.infer import MCMC, NUTS

    data = np.random.default_rng(0).normal(1.5, 0.7, 60).astype(np.float32)

    def model(y: jax.Array) -> None:
        mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
        numpyro.sample("y", dist.Normal(mu, 0.7), obs=y)

    chains = MCMC(
        NUTS(model), num_warmup=150, num_samples=200, num_chains=3, chain_method="vectorized", progress_bar=False
    )
    chains.run(jax.random.key(0), jnp.asarray(data))
    mu = np.asarray(chains.get_samples()["mu"], np.float64)
    precision = 60 / 0.7**2 + 1 / 25
    mean, deviation = data.sum(dtype=np.float64) / 0.7**2 / precision, precision**-0.5
    # 600 draws with an effective size of at least 100: five standard errors.
    assert abs(mu.mean() - mean) < 5 * deviation / 10
    assert 0.7 < mu.std() / deviation < 1.4


def test_blackjax_nuts() -> None:
    blackjax = pytest.importorskip("blackjax")
    kernel = blackjax.nuts(lambda x: -0.5 * jnp.sum((x - 2.0) ** 2), 0.4, jnp.ones(4))

    def step(state: Any, key: jax.Array) -> Any:
        state, info = kernel.step(key, state)
        return state, (state.position, info.num_integration_steps)

    _, (positions, steps) = jax.jit(
        lambda x: jax.lax.scan(step, kernel.init(x), jax.random.split(jax.random.key(1), 500))
    )(jnp.zeros(4))
    draws = np.asarray(positions, np.float64)[50:]
    assert np.asarray(steps).max() > 1
    np.testing.assert_allclose(draws.mean(0), 2.0, atol=0.3)
    np.testing.assert_allclose(draws.std(0), 1.0, atol=0.3)


SCENE = """
<mujoco><option timestep="0.005"/><worldbody><geom type="plane" size="2 2 .1"/>
<body pos="0 0 .12"><freejoint/><geom type="sphere" size=".1" mass="1"/></body>
<body pos=".4 0 .5"><joint type="hinge" axis="0 1 0"/><geom type="capsule" size=".03" fromto="0 0 0 .2 0 0"/></body>
</worldbody></mujoco>"""


def test_mjx_steps_as_mujoco_does() -> None:
    mujoco = pytest.importorskip("mujoco")
    mjx = pytest.importorskip("mujoco.mjx")
    model = mujoco.MjModel.from_xml_string(SCENE)
    state, step = mjx.make_data(model, impl="jax"), jax.jit(mjx.step)  # impl: it knows CPUs, GPUs and TPUs
    on_device = mjx.put_model(model, impl="jax")
    data = mujoco.MjData(model)
    for _ in range(20):
        state = step(on_device, state)
        mujoco.mj_step(model, data)
    np.testing.assert_allclose(state.qpos, data.qpos, atol=1e-3)
    np.testing.assert_allclose(state.qvel, data.qvel, atol=2e-2)


def test_brax_as_on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    envs = pytest.importorskip("brax.envs")
    mjx = pytest.importorskip("mujoco.mjx")
    # MJX, which reads the model, chooses an implementation by the platform's name and does not know metal's; Brax does
    # not hand its `impl` on.
    monkeypatch.setattr("mujoco.mjx._src.io._resolve_impl", lambda device: mjx.Impl.JAX)
    env = envs.get_environment("inverted_pendulum", backend="spring")

    @jax.jit
    def run(key: jax.Array) -> Any:
        def step(state: Any, action: jax.Array) -> Any:
            state = env.step(state, action)
            return state, (state.obs, state.reward)

        return jax.lax.scan(step, env.reset(key), jnp.full((3, env.action_size), 0.3))[1]

    on_metal = run(jax.random.key(3))
    with jax.default_device(jax.devices("cpu")[0]):
        on_cpu = run(jax.random.key(3))
    for ours, theirs in zip(on_metal, on_cpu, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-4)
