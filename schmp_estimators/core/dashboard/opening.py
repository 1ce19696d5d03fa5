"""Giving the page of fits to a scheduler's dashboard, where it has one."""

from distributed import Scheduler
from tornado.ioloop import IOLoop

from schmp_estimators.core.dashboard.fits import Fits


async def open_page(scheduler: Scheduler) -> str:
    """Open the page, unless it is open; returns why that is impossible, nothing if it is open."""
    if Fits.name in scheduler.plugins:
        return ""
    try:
        from distributed.dashboard.core import BokehApplication  # noqa: PLC0415  (bokeh is optional)
        from distributed.dashboard.scheduler import template_variables  # noqa: PLC0415

        from schmp_estimators.core.dashboard.page import PAGE, show  # noqa: PLC0415
    except ImportError as error:
        return f"the scheduler has no dashboard ({error})"
    served = [app for app in scheduler.http_application.applications if "/status" in getattr(app, "app_paths", ())]
    if not served:
        return "the scheduler has no dashboard"
    fits = Fits(scheduler)
    variables = template_variables(scheduler)
    application = BokehApplication({f"/{PAGE}": show}, scheduler, prefix=served[0].prefix, template_variables=variables)
    scheduler.http_application.add_application(application)
    application.initialize(IOLoop.current())
    application.start()
    if PAGE not in variables["pages"]:
        variables["pages"].append(PAGE)
    scheduler.add_plugin(fits)
    await fits.count_moved()
    return ""
