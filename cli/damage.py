"""Is it the log and not the program? Asked when a command fails in a way that nobody foresaw."""


def refuse_damaged(location: str) -> None:
    """Raises DamagedError where the database has a run that is not as it was written."""
    from diagevo.errors import DamagedError, DiagEvoError
    from diagevo.memory.audit.verify import verify
    from diagevo.memory.log.database import Database
    from diagevo.memory.log.log import Log
    from diagevo.memory.log.migrate import prepare
    from diagevo.memory.places import runs_folder

    try:
        database = Database(location)
        try:
            prepare(database, create=False)
            log = Log(database)
            for run_id in log.runs():
                report = verify(log, run_id, runs_folder(database) / run_id, deep=True)
                if not report.ok:
                    raise DamagedError(f"run {run_id} is damaged: {report.faults[0].message}")
        finally:
            database.close()
    except DamagedError:
        raise
    except DiagEvoError:
        return  # a database that is not there, old or away did not do it
