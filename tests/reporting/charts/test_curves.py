"""The curves of a run, also of one that made no step."""

import pytest

pytest.importorskip("matplotlib")

from pocketune.reporting.charts.curves import loss_chart, metric_chart, rate_chart
from pocketune.reporting.metrics import Metrics
from pocketune.tasks import Score


def epoch(step: int, accuracy: float | None, loss: float | None = 1.0):
    return {
        "step": step, "loss": loss, "accuracy": loss and 0.5,
        "validation_accuracy": accuracy, "validation_loss": accuracy and 1 - accuracy,
    }  # fmt: skip


def steps(count: int):
    return tuple(
        {"step": i + 1, "loss": 2 / (i + 1), "accuracy": i / count, "lr": 0.1 * (count - i)}
        for i in range(count)
    )


def test_the_best_step_is_marked_also_if_it_is_the_start():
    metrics = Metrics(steps(4), (epoch(0, 0.6, None), epoch(4, 0.5)))
    start = Score("accuracy", 0.6, 0.4)
    marked = metric_chart(metrics, "accuracy", ".1%", 0, start)
    plain = metric_chart(metrics, "accuracy", ".1%", None, start)
    assert marked.svg.count("<path") == plain.svg.count("<path") + 1
    assert "start, 60.0%" in marked.svg
    assert marked.text == "The accuracy on the validation photos goes from 60.0% to 50.0%."
    assert marked.table.rows == (("0", "-", "60.0%"), ("4", "50.0%", "50.0%"))


def test_extremes_between_the_ends_are_named():
    values = (0.5, 0.9, 0.4, 0.6)
    metrics = Metrics((), tuple(epoch(n, value) for n, value in enumerate(values)))
    text = metric_chart(metrics, "accuracy", ".1%", 1, None).text
    assert text.endswith("to 60.0%; the lowest is 40.0%; the highest is 90.0%.")


def test_a_run_without_steps_has_its_start_and_no_rate():
    metrics = Metrics((), (epoch(0, 0.6, None),))
    chart = metric_chart(metrics, "accuracy", ".1%", 0, None)
    assert chart.text == "The accuracy on the validation photos is 60.0%."
    assert rate_chart(metrics) is None


def test_a_run_without_validation_has_the_curves_of_training():
    metrics = Metrics(steps(4), (epoch(2, None), epoch(4, None, 0.5)))
    assert loss_chart(metrics).text == "The loss on the training batches goes from 1.000 to 0.500."
    nothing = loss_chart(Metrics((), ()))
    assert nothing.text == "Nothing was measured." and not nothing.table.rows


def test_of_many_epochs_evenly_spread_ones_are_listed():
    metrics = Metrics((), tuple(epoch(n, n / 1000) for n in range(500)))
    rows = loss_chart(metrics).table.rows
    assert len(rows) == 60 and (rows[0][0], rows[-1][0]) == ("0", "499")
