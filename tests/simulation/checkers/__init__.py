"""The rules that no run may break, a file for each kind of them."""

from __future__ import annotations

from tests.simulation.checkers.answers import AnswersChecker, CancelsChecker, PausesChecker
from tests.simulation.checkers.base import Checker
from tests.simulation.checkers.capacity import CapacityChecker
from tests.simulation.checkers.cells import CellsChecker
from tests.simulation.checkers.finding import FindingChecker
from tests.simulation.checkers.hints import AssignmentsChecker
from tests.simulation.checkers.logs import LogsChecker
from tests.simulation.checkers.messages import MessagesChecker
from tests.simulation.checkers.order import OrderChecker
from tests.simulation.checkers.policies import PoliciesChecker
from tests.simulation.checkers.priorities import PrioritiesChecker
from tests.simulation.checkers.quotas import QuotasChecker
from tests.simulation.checkers.rest import RestChecker
from tests.simulation.checkers.retries import RetriesChecker
from tests.simulation.checkers.rooms import RoomsChecker
from tests.simulation.checkers.schedules import SchedulesChecker
from tests.simulation.checkers.seals import SealsChecker
from tests.simulation.checkers.starts import StartsChecker
from tests.simulation.checkers.starving import StarvingChecker
from tests.simulation.checkers.times import TimesChecker
from tests.simulation.checkers.usage import UsageChecker
from tests.simulation.checkers.yields import YieldsChecker

CHECKERS: tuple[type[Checker], ...] = (
    CellsChecker,
    SealsChecker,
    FindingChecker,
    StartsChecker,
    TimesChecker,
    RetriesChecker,
    OrderChecker,
    AnswersChecker,
    CancelsChecker,
    PausesChecker,
    LogsChecker,
    PoliciesChecker,
    UsageChecker,
    PrioritiesChecker,
    MessagesChecker,
    CapacityChecker,
    YieldsChecker,
    RoomsChecker,
    StarvingChecker,
    QuotasChecker,
    AssignmentsChecker,
    SchedulesChecker,
    RestChecker,
)
